"""How long each step took, by the injected clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from schemas.questions import Step, Tell, untold

Clock = Callable[[], datetime]
"""Now, in UTC."""


def milliseconds(began: datetime, ended: datetime) -> float:
    return round((ended - began).total_seconds() * 1000, 3)


class Stopwatch:
    """`ms` holds the time of each step by name; a step that runs twice adds up. Each is told as it begins and ends."""

    def __init__(self, clock: Clock, tell: Tell = untold) -> None:
        self._clock, self._tell = clock, tell
        self._began = clock()
        self.ms: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = self._clock()
        self._tell(Step(name=name))
        try:
            yield
        finally:
            took = milliseconds(began, self._clock())
            self.ms[name] = round(self.ms.get(name, 0.0) + took, 3)
            self._tell(Step(name=name, ms=took))

    def finished(self) -> dict[str, float]:
        return {**self.ms, "total": milliseconds(self._began, self._clock())}
