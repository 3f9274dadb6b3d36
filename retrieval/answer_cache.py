"""Cache answers and query embeddings for as long as the index they rest on is unchanged."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Generic, Literal, TypeVar
from uuid import UUID

from retrieval.timing import Clock
from schemas.errors import AnabranchError, DatabaseUnavailable
from schemas.events import QueryAnswered
from schemas.ports.engines import Embedder, QueryEmbedding
from schemas.ports.search import IndexChanges, SnapshotVersion
from schemas.principals import Principal, ReaderScope
from schemas.questions import QueryResponse, SearchResponse

ResponseT = TypeVar("ResponseT", SearchResponse, QueryResponse)
# Tenant, readers key, generation, request type and the whole request as JSON.
AnswerKey = tuple[str, str, str, str, str]
# An answer is cached from its second computation on: most queries come once, and caching those
# would evict
# the frequent ones.
MIN_HITS = 2
# Limit on waiting for an identical query in flight: a chat model may hang, and each caller must
# then try for
# itself.
DUPLICATE_WAIT_S = 10.0
CacheName = Literal["answers", "question_embeddings"]
CacheUse = Literal["hit", "miss", "stale"]
OnCacheUse = Callable[[CacheName, CacheUse], None]


def format_readers_key(readers: ReaderScope) -> str:
    """Format a key that is equal for callers who may read the same documents of a tenant."""
    return json.dumps(None if readers is None else sorted(set(readers)))


def ignore_cache_use(cache: CacheName, cache_use: CacheUse) -> None:
    """Count nothing."""


@dataclass(frozen=True, slots=True)
class QueryOutcome(Generic[ResponseT]):
    """The response to a query and the event to publish.

    `snapshot_version` is the index version it was computed from; None means: do not cache.
    """

    response: ResponseT
    answered_event: QueryAnswered
    snapshot_version: SnapshotVersion | None

    def copy_for_run(
        self, run_id: UUID, answered_at: datetime, timings_ms: dict[str, float]
    ) -> QueryOutcome[ResponseT]:
        """Copy the outcome for another run, with no model calls, tokens or cost."""
        trace = self.response.trace.model_copy(
            update={
                "cached": True,
                "timings_ms": timings_ms,
                "model_calls": 0,
                "tokens": 0,
                "cost": None,
            }
        )
        response = self.response.model_copy(update={"run_id": run_id, "trace": trace})
        answered_event = self.answered_event.model_copy(
            update={
                "run_id": run_id,
                "answered_at": answered_at,
                "response": response.model_dump(mode="json"),
            }
        )
        return replace(self, response=response, answered_event=answered_event)


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    # None until the query has been answered MIN_HITS times: a first occurrence stores its count
    # only.
    outcome: QueryOutcome[SearchResponse] | QueryOutcome[QueryResponse] | None
    snapshot_version: SnapshotVersion
    expires_at: datetime
    answer_count: int


@dataclass(slots=True)
class _InFlightAnswer:
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    # Holds its outcome from the first answer on, for callers that waited for it.
    entry: _CacheEntry | None = None


class AnswerCache:
    """LRU cache of answers with a time to live and an index-version check.

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
        duplicate_wait_s: float = DUPLICATE_WAIT_S,
    ) -> None:
        self._changes, self._clock, self._max_entries, self._ttl, self._on_use = (
            changes,
            clock,
            max_entries,
            ttl,
            on_use,
        )
        self._duplicate_wait_s = duplicate_wait_s
        self._entries: OrderedDict[AnswerKey, _CacheEntry] = OrderedDict()
        # Keys whose last outcome could not be cached, with expiry: waiting for one in flight would
        # gain nothing.
        self._uncacheable: OrderedDict[AnswerKey, datetime] = OrderedDict()
        self._in_flight: dict[AnswerKey, _InFlightAnswer] = {}

    def __len__(self) -> int:
        return len(self._entries)

    async def get_or_answer(
        self,
        key: AnswerKey,
        response_type: type[ResponseT],
        answer_fresh: Callable[[], Awaitable[QueryOutcome[ResponseT]]],
    ) -> tuple[QueryOutcome[ResponseT], bool]:
        """Return the outcome for `key`, and whether it was cached.

        An outcome is cached from its second computation on. Waits up to `duplicate_wait_s` for an
        identical query in flight. Raises DatabaseUnavailable, and whatever `answer_fresh` raises.
        """
        was_cached = key in self._entries
        cached_outcome = await self._lookup(key, response_type, self._entries.get(key))
        if (
            cached_outcome is None
            and key not in self._uncacheable
            and (in_flight := self._in_flight.get(key))
        ):
            with suppress(TimeoutError):
                async with asyncio.timeout(self._duplicate_wait_s):
                    await in_flight.finished.wait()
            cached_outcome = await self._lookup(
                key, response_type, in_flight.entry or self._entries.get(key)
            )
        self._on_use(
            "answers",
            "hit"
            if cached_outcome
            else "stale"
            if was_cached and key not in self._entries
            else "miss",
        )
        return (
            (cached_outcome, True)
            if cached_outcome
            else (await self._answer_fresh(key, answer_fresh), False)
        )

    async def evict_stale(self) -> None:
        """Evict expired and outdated entries, so that no withdrawn or erased text stays in memory.

        Evicts everything when the database cannot be reached.
        """
        for key in [
            key for key, expires_at in self._uncacheable.items() if expires_at <= self._clock()
        ]:
            del self._uncacheable[key]
        if not (entries := list(self._entries.items())):
            return
        validity = [False] * len(entries)
        try:
            with suppress(DatabaseUnavailable):
                validity = await self._changes.check_unchanged(
                    [entry.snapshot_version for _, entry in entries]
                )
        finally:
            for (key, entry), is_valid in zip(entries, validity, strict=True):
                if (not is_valid or entry.expires_at <= self._clock()) and self._entries.get(
                    key
                ) is entry:
                    del self._entries[key]

    async def _lookup(
        self, key: AnswerKey, response_type: type[ResponseT], entry: _CacheEntry | None
    ) -> QueryOutcome[ResponseT] | None:
        if entry is None:
            return None
        if not await self._is_valid(entry):
            if (
                current_entry := self._entries.get(key)
            ) and current_entry.snapshot_version is entry.snapshot_version:
                del self._entries[key]
            return None
        if entry.outcome is None or not isinstance(entry.outcome.response, response_type):
            return None
        if key in self._entries:
            self._entries.move_to_end(key)
        return QueryOutcome(
            entry.outcome.response, entry.outcome.answered_event, entry.snapshot_version
        )

    async def _answer_fresh(
        self, key: AnswerKey, answer_fresh: Callable[[], Awaitable[QueryOutcome[ResponseT]]]
    ) -> QueryOutcome[ResponseT]:
        own_answer = _InFlightAnswer()
        registered = self._in_flight.setdefault(key, own_answer)
        try:
            outcome = await answer_fresh()
            own_answer.entry = self._store(key, outcome)
            return outcome
        except AnabranchError:
            self._mark_uncacheable(key)
            raise
        finally:
            own_answer.finished.set()
            if registered is own_answer:
                del self._in_flight[key]

    def _store(
        self, key: AnswerKey, outcome: QueryOutcome[SearchResponse] | QueryOutcome[QueryResponse]
    ) -> _CacheEntry | None:
        if outcome.snapshot_version is None:
            self._mark_uncacheable(key)
            return None
        self._uncacheable.pop(key, None)
        previous_entry = self._entries.get(key)
        entry = _CacheEntry(
            outcome,
            outcome.snapshot_version,
            self._clock() + self._ttl,
            previous_entry.answer_count + 1 if previous_entry else 1,
        )
        self._entries[key] = (
            entry if entry.answer_count >= MIN_HITS else replace(entry, outcome=None)
        )
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return entry

    def _mark_uncacheable(self, key: AnswerKey) -> None:
        self._uncacheable[key] = self._clock() + self._ttl
        self._uncacheable.move_to_end(key)
        while len(self._uncacheable) > self._max_entries:
            self._uncacheable.popitem(last=False)

    async def _is_valid(self, entry: _CacheEntry) -> bool:
        return (
            entry.expires_at > self._clock()
            and (await self._changes.check_unchanged([entry.snapshot_version]))[0]
        )


class QueryEmbeddingCache:
    """LRU cache of query embeddings, separate for each set of readers.

    A shared cache would reveal by its timing what other readers query. Keys are hashes: no query
    text is stored.
    """

    def __init__(
        self, embedder: Embedder, *, max_entries: int, on_use: OnCacheUse = ignore_cache_use
    ) -> None:
        self._embedder, self._max_entries, self._on_use = embedder, max_entries, on_use
        self._entries: OrderedDict[bytes, QueryEmbedding] = OrderedDict()

    async def embed_query(self, caller: Principal, text: str) -> QueryEmbedding:
        """Return the embedding of `text`. Raises what the embedder raises."""
        key = hashlib.sha256(
            json.dumps([caller.tenant, format_readers_key(caller.readers), text]).encode()
        ).digest()
        embedded_query = self._entries.get(key)
        self._on_use("question_embeddings", "miss" if embedded_query is None else "hit")
        if embedded_query is None:
            embedded_query = await self._embedder.embed_query(text)
        self._entries[key] = embedded_query
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return embedded_query
