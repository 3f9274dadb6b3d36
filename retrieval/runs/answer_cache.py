"""Cache answers for as long as the index they rest on is unchanged (ADR 0011)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from cachetools import TTLCache

from retrieval.ranking.query_context import Clock, OnCacheUse, ignore_cache_use
from schemas.errors import DatabaseUnavailable
from schemas.ports.search import IndexChanges, SnapshotVersion

# Tenant, readers key, generation, request type and the hash of the whole request.
AnswerKey = tuple[str, str, str, str, str]
# A chat model may hang: after this time each caller of an identical query tries for itself.
DUPLICATE_WAIT_S = 10.0


class Outcome(Protocol):
    """A result that may be cached."""

    @property
    def snapshot_version(self) -> SnapshotVersion | None:
        """The index version it was computed from; None means: do not cache."""


OutcomeT = TypeVar("OutcomeT", bound=Outcome)


class AnswerCache:
    """LRU cache of answers with a time to live.

    Every hit checks in the database that the index version is unchanged, so that a change is
    visible to the next query in every process.
    """

    def __init__(
        self,
        changes: IndexChanges,
        clock: Clock,
        *,
        max_entries: int,
        ttl: timedelta,
        on_use: OnCacheUse = ignore_cache_use,
    ) -> None:
        self._changes, self._on_use = changes, on_use
        self._outcomes: TTLCache[AnswerKey, Any] = TTLCache(
            max_entries, ttl.total_seconds(), timer=lambda: clock().timestamp()
        )
        self._in_flight: dict[AnswerKey, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._outcomes)

    async def get_or_answer(
        self, key: AnswerKey, answer_fresh: Callable[[], Awaitable[OutcomeT]]
    ) -> tuple[OutcomeT, bool]:
        """Return the outcome for `key`, and whether it was cached.

        Waits for an identical query in flight. Raises DatabaseUnavailable, and whatever
        `answer_fresh` raises.
        """
        # Before the lookup, which evicts a stale answer: metrics separate stale from miss.
        was_cached = key in self._outcomes
        cached = await self._lookup(key)
        if cached is None and (in_flight := self._in_flight.get(key)):
            with suppress(TimeoutError):
                async with asyncio.timeout(DUPLICATE_WAIT_S):
                    await in_flight.wait()
            # The first caller may have failed, or its answer may not be
            # cacheable: then this one answers.
            cached = await self._lookup(key)
        self._on_use("answers", "hit" if cached else "stale" if was_cached else "miss")
        if cached is not None:
            return cached, True
        own_answer = asyncio.Event()
        # After a timed-out wait, the event of a slower caller is still registered and must stay.
        registered = self._in_flight.setdefault(key, own_answer)
        try:
            outcome = await answer_fresh()
            if outcome.snapshot_version is not None:
                self._outcomes[key] = outcome
            return outcome, False
        finally:
            # Also after an error, or the waiting callers would sit out the whole timeout.
            own_answer.set()
            if registered is own_answer:
                del self._in_flight[key]

    async def evict_stale(self) -> None:
        """Evict expired and outdated answers, so that no withdrawn or erased text stays in memory.

        Evicts everything when the database cannot be reached.
        """
        self._outcomes.expire()
        if not (outcomes := list(self._outcomes.items())):
            return
        # The result when the check fails: without the database, no answer is known to be valid.
        unchanged = [False] * len(outcomes)
        try:
            with suppress(DatabaseUnavailable):
                unchanged = await self._changes.check_unchanged(
                    [
                        outcome.snapshot_version
                        for _, outcome in outcomes
                        if outcome.snapshot_version
                    ]
                )
        # Also when the check is cancelled: text that was not verified must leave memory.
        finally:
            for (key, outcome), is_valid in zip(outcomes, unchanged, strict=True):
                # It may have been replaced by a newer answer during the check.
                if not is_valid and self._outcomes.get(key) is outcome:
                    self._outcomes.pop(key, None)

    async def _lookup(self, key: AnswerKey) -> Any:
        outcome = self._outcomes.get(key)
        if outcome is None or outcome.snapshot_version is None:
            return None
        if (await self._changes.check_unchanged([outcome.snapshot_version]))[0]:
            return outcome
        # Another caller may have stored a newer answer during the check.
        if self._outcomes.get(key) is outcome:
            self._outcomes.pop(key, None)
        return None
