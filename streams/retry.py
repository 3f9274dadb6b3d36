"""Retries: the budget of a reaction, delays, waiting for outages to end, and open attempts.

Attempts show which event kills the workers that process it. The ledger stores them, and a worker
withdraws those that it ends. Killed workers leave theirs, which count as abandoned.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

import structlog

from schemas.errors import (
    DatabaseUnavailable,
    EngineUnavailable,
    LogUnavailable,
    PermanentError,
    TransientError,
)
from schemas.ports.ledger import ClaimResult, Ledger

# Bounds how long closing a partition, and so a rebalance, waits for a lost database.
WITHDRAWAL_TIMEOUT_S = 5.0


class OpenAttempts:
    """Attempts of a stage that this process recorded and has not ended.

    The claim of a duplicate must not count them as abandoned.
    """

    def __init__(self, stage_name: str, ledger: Ledger) -> None:
        self._stage_name, self._ledger = stage_name, ledger
        self._counts: Counter[UUID] = Counter()

    def count(self, event_id: UUID) -> int:
        return self._counts[event_id]

    def subtract_own(self, claim: ClaimResult, event_id: UUID, before: int) -> ClaimResult:
        """Leave out the attempts of this process, of which there were `before` before the claim."""
        # The greater of both: attempts may have begun or ended during the claim.
        own_attempts = max(before, self.count(event_id))
        return replace(claim, abandoned_attempts=max(0, claim.abandoned_attempts - own_attempts))

    def add(self, event_ids: Iterable[UUID]) -> None:
        self._counts.update(event_ids)

    def forget(self, event_ids: Iterable[UUID]) -> None:
        """Remove one attempt at each event, which the ledger has ended."""
        for event_id in event_ids:
            self._counts[event_id] -= 1
            if self._counts[event_id] <= 0:
                del self._counts[event_id]

    async def withdraw(self, event_ids: Sequence[UUID]) -> None:
        """End one attempt at each event, finished or cancelled."""
        self.forget(event_ids)
        if event_ids:
            # Closing a partition must not wait for a lost database; the attempt then counts as
            # abandoned.
            with suppress(TransientError, TimeoutError):
                async with asyncio.timeout(WITHDRAWAL_TIMEOUT_S):
                    await self._ledger.withdraw_attempt(self._stage_name, event_ids)


log = structlog.get_logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """Attempts of one event, after which it is dead-lettered.

    `failed` ones raised an error that may pass; with the default backoff, five take about 6 s.
    `abandoned` ones are those that no worker ended.
    """

    failed: int = 5
    abandoned: int = 3


def worker_lost_error(attempts: int) -> PermanentError:
    return PermanentError(
        f"{attempts} workers were killed or expelled while they processed this event.",
        code="WORKER_LOST",
        remedy="Find the cause in the workers' logs (memory, a hung engine). Then redrive the "
        "event, or send the document in smaller files.",
    )


@dataclass(slots=True, eq=False)
class RetryBudget:
    """Attempts left for one reaction.

    Outages do not count, unless the service answered others between the failures.
    """

    limits: AttemptLimits
    failures: int = 0
    isolated_failures: int = 0
    _last_answer_count: int | None = None

    def record_failure(self, error: TransientError, successes: int) -> bool:
        """Record a failure and return whether the budget is used up.

        `successes` counts the stage's successful reactions.
        """
        # Prefer the engine's own count of answers, since a reaction may succeed without calling it.
        answer_count = (
            error.n_answers
            if isinstance(error, EngineUnavailable) and error.n_answers is not None
            else successes
        )
        self.failures += 1
        # If others got answers between two failures, the service is up and this input is the cause.
        self.isolated_failures += (
            self._last_answer_count is not None and answer_count > self._last_answer_count
        )
        self._last_answer_count = answer_count
        is_outage = isinstance(error, EngineUnavailable | LogUnavailable | DatabaseUnavailable)
        return (self.isolated_failures if is_outage else self.failures) >= self.limits.failed


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays between attempts: doubling from `first_s` to `max_s`."""

    first_s: float = 0.2
    max_s: float = 15.0

    def compute_delay_s(self, attempt: int) -> float:
        # The exponent is bounded, since 2.0 ** attempt overflows in an outage of days.
        return min(self.max_s, self.first_s * 2.0 ** min(attempt, 16))


async def retry_outages(
    call: Callable[[], Awaitable[T]],
    backoff: Backoff,
    on_retry: Callable[[TransientError], None] | None = None,
    **context: str,
) -> T:
    """Repeat an idempotent call until Postgres or the log is back.

    A lost call may have been committed. `context` is logged with each retry.
    """
    attempt = 0
    while True:
        try:
            return await call()
        except TransientError as error:
            attempt += 1
            if on_retry is not None:
                on_retry(error)
            log.warning(
                "call_retried", code=error.code, detail=error.detail, attempt=attempt, **context
            )
            await asyncio.sleep(backoff.compute_delay_s(attempt))
