"""How long each step took, by the injected clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from schemas.questions import OnProgress, StepProgress, ignore_progress

Clock = Callable[[], datetime]
"""Now, in UTC."""


def elapsed_ms(started_at: datetime, ended_at: datetime) -> float:
    return round((ended_at - started_at).total_seconds() * 1000, 3)


class Stopwatch:
    """`ms` holds the time of each step by name; a step that runs twice adds up. Each is told as it begins and ends."""

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
