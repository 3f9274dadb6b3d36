"""How often one reaction is tried."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import DatabaseUnavailable, EngineUnavailable, LogUnavailable, TransientError

MAX_ATTEMPTS = 5


@dataclass(slots=True, eq=False)
class RetryBudget:
    """A service that is away is waited for, unless it is away for this reaction only: it answered others between so many of its failures."""

    failures: int = 0
    isolated_failures: int = 0
    _last_answer_count: int | None = None

    def record_failure(self, error: TransientError, successes: int) -> bool:
        """Whether it is enough. `successes` are the stage's own: they stand for answers where nobody has counted these, as a reaction may succeed without asking."""
        answer_count = error.n_answers if isinstance(error, EngineUnavailable) and error.n_answers is not None else successes
        self.failures += 1
        self.isolated_failures += self._last_answer_count is not None and answer_count > self._last_answer_count
        self._last_answer_count = answer_count
        is_outage = isinstance(error, EngineUnavailable | LogUnavailable | DatabaseUnavailable)
        return (self.isolated_failures if is_outage else self.failures) >= MAX_ATTEMPTS
