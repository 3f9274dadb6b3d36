"""Retries: the budget of a reaction, delays, and waiting for outages to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from schemas.errors import DatabaseUnavailable, EngineUnavailable, LogUnavailable, TransientError

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
