"""Retry budget of a reaction."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import DatabaseUnavailable, EngineUnavailable, LogUnavailable, TransientError

MAX_ATTEMPTS = 5


@dataclass(slots=True, eq=False)
class RetryBudget:
    """Attempts left for one reaction.

    Outages do not count, unless the service answered others between the failures.
    """

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
        self.isolated_failures += (
            self._last_answer_count is not None and answer_count > self._last_answer_count
        )
        self._last_answer_count = answer_count
        is_outage = isinstance(error, EngineUnavailable | LogUnavailable | DatabaseUnavailable)
        return (self.isolated_failures if is_outage else self.failures) >= MAX_ATTEMPTS
