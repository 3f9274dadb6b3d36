"""How often one reaction is tried."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import DatabaseUnavailable, EngineUnavailable, LogUnavailable, TransientError

ATTEMPTS = 5


@dataclass(slots=True, eq=False)
class Tries:
    """A service that is away is waited for, unless it is away for this reaction only: it answered others between so many of its failures."""

    failed: int = 0
    passed_over: int = 0
    _answers: int | None = None

    def fail(self, error: TransientError, successes: int) -> bool:
        """Whether it is enough. `successes` are the stage's own: they stand for answers where nobody has counted these, as a reaction may succeed without asking."""
        answers = error.answers if isinstance(error, EngineUnavailable) and error.answers is not None else successes
        self.failed += 1
        self.passed_over += self._answers is not None and answers > self._answers
        self._answers = answers
        is_awaited = isinstance(error, EngineUnavailable | LogUnavailable | DatabaseUnavailable)
        return (self.passed_over if is_awaited else self.failed) >= ATTEMPTS
