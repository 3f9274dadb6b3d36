"""What the runtime tells of itself. The composition hands in an observer that feeds the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from schemas.records import Record


class Observer(Protocol):
    def finished(self, stage: str, buried_code: str | None) -> None: ...

    def retried(self, stage: str, reason: str) -> None: ...

    def in_flight(self, stage: str, change: int) -> None: ...

    def took(self, stage: str, seconds: float) -> None: ...

    def asked_engine(self, engine: str, inputs: int) -> None:
        """Parts of documents parsed, texts embedded, parts of documents extracted from: by an engine, and not from memory."""

    def published(self, records: Sequence[Record]) -> None:
        """The log has them."""


class Silent:
    """Observes nothing."""

    def finished(self, stage: str, buried_code: str | None) -> None: ...

    def retried(self, stage: str, reason: str) -> None: ...

    def in_flight(self, stage: str, change: int) -> None: ...

    def took(self, stage: str, seconds: float) -> None: ...

    def asked_engine(self, engine: str, inputs: int) -> None: ...

    def published(self, records: Sequence[Record]) -> None: ...
