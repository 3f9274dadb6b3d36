"""What the runtime tells of itself. The composition hands in an observer that feeds the metrics."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    def finished(self, stage: str, buried_code: str | None) -> None: ...

    def retried(self, stage: str, reason: str) -> None: ...

    def in_flight(self, stage: str, change: int) -> None: ...

    def took(self, stage: str, seconds: float) -> None: ...

    def asked_engine(self, engine: str, inputs: int) -> None:
        """Parts of documents parsed, texts embedded, parts of documents extracted from: by an engine, and not from memory."""


class Silent:
    """Observes nothing."""

    def finished(self, stage: str, buried_code: str | None) -> None: ...

    def retried(self, stage: str, reason: str) -> None: ...

    def in_flight(self, stage: str, change: int) -> None: ...

    def took(self, stage: str, seconds: float) -> None: ...

    def asked_engine(self, engine: str, inputs: int) -> None: ...
