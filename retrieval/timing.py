"""Measure the duration of each step by the injected clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from schemas.questions import OnProgress, StepProgress, ignore_progress

# Returns the current time in UTC.
Clock = Callable[[], datetime]


def elapsed_ms(started_at: datetime, ended_at: datetime) -> float:
    return round((ended_at - started_at).total_seconds() * 1000, 3)


class Stopwatch:
    """Duration of each step by name, in ms.

    A repeated step adds up. Reports each start and end to `on_progress`.
    """

    def __init__(self, clock: Clock, on_progress: OnProgress = ignore_progress) -> None:
        self._clock, self._on_progress = clock, on_progress
        self._started_at = clock()
        self.ms: dict[str, float] = {}

    @contextmanager
    def measure_step(self, name: str) -> Iterator[None]:
        started_at = self._clock()
        self._on_progress(StepProgress(name=name))
        try:
            yield
        finally:
            duration_ms = elapsed_ms(started_at, self._clock())
            self.ms[name] = round(self.ms.get(name, 0.0) + duration_ms, 3)
            self._on_progress(StepProgress(name=name, ms=duration_ms))

    def get_timings_ms(self) -> dict[str, float]:
        return {**self.ms, "total": elapsed_ms(self._started_at, self._clock())}
