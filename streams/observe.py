"""What the runtime tells of itself. The composition hands in an observer that feeds the metrics."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    def finished(self, stage: str, buried_code: str | None) -> None: ...

    def retried(self, stage: str, reason: str) -> None: ...

    def in_flight(self, stage: str, change: int) -> None: ...

    def took(self, stage: str, seconds: float) -> None: ...


class Silent:
    """Observes nothing."""

    def finished(self, stage: str, buried_code: str | None) -> None: ...

    def retried(self, stage: str, reason: str) -> None: ...

    def in_flight(self, stage: str, change: int) -> None: ...

    def took(self, stage: str, seconds: float) -> None: ...
