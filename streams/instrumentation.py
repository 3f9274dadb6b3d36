"""Instrumentation hooks of the runtime, for counters and timings."""

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
        """Count inputs (pages, texts, document parts) that an engine processed, without memoized
        ones.
        """

    def count_published(self, records: Sequence[Record]) -> None:
        """Count records that the log has acknowledged."""


class NoInstrumentation:
    """Ignores all measurements."""

    def count_finished(self, stage: str, dead_letter_code: str | None) -> None: ...

    def count_retry(self, stage: str, reason: str) -> None: ...

    def adjust_in_flight(self, stage: str, change: int) -> None: ...

    def observe_duration(self, stage: str, seconds: float) -> None: ...

    def count_engine_inputs(self, engine: str, input_count: int) -> None: ...

    def count_published(self, records: Sequence[Record]) -> None: ...
