"""What the runtime tells of itself. The composition hands in an observer that feeds the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from schemas.records import Record


class Instrumentation(Protocol):
    def count_finished(self, stage: str, dead_letter_code: str | None) -> None: ...

    def count_retry(self, stage: str, reason: str) -> None: ...

    def adjust_in_flight(self, stage: str, change: int) -> None: ...

    def observe_duration(self, stage: str, seconds: float) -> None: ...

    def count_engine_inputs(self, engine: str, input_count: int) -> None:
        """Parts of documents parsed, texts embedded, parts of documents extracted from: by an engine, and not from memory."""

    def count_published(self, records: Sequence[Record]) -> None:
        """The log has them."""


class NoInstrumentation:
    """Observes nothing."""

    def count_finished(self, stage: str, dead_letter_code: str | None) -> None: ...

    def count_retry(self, stage: str, reason: str) -> None: ...

    def adjust_in_flight(self, stage: str, change: int) -> None: ...

    def observe_duration(self, stage: str, seconds: float) -> None: ...

    def count_engine_inputs(self, engine: str, input_count: int) -> None: ...

    def count_published(self, records: Sequence[Record]) -> None: ...
