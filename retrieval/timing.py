"""How long each step took, by the injected clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

Clock = Callable[[], datetime]
"""Now, in UTC."""


def milliseconds(began: datetime, ended: datetime) -> float:
    return round((ended - began).total_seconds() * 1000, 3)


class Stopwatch:
    """`ms` holds the time of each step by name; a step that runs twice adds up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock()
        self.ms: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        finally:
            self.ms[name] = round(self.ms.get(name, 0.0) + milliseconds(began, self._clock()), 3)

    def finished(self) -> dict[str, float]:
        return {**self.ms, "total": milliseconds(self._began, self._clock())}
