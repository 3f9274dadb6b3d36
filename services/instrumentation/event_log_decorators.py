"""Decorators of a log's writing side: log or suppress outcomes, report published records."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from schemas.ports.log import RecordAppender
from schemas.records import Position, Record
from schemas.topics import OUTCOMES

log = structlog.get_logger(__name__)
LOGGED_FIELDS = ("document_id", "tenant", "event_id", "source", "chunks_count", "code")


@dataclass(frozen=True, slots=True)
class OutcomeLoggingLog:
    """Log one line per published outcome. No text of a document enters it."""

    inner: RecordAppender

    async def append(self, records: Sequence[Record]) -> list[Position]:
        positions = await self.inner.append(records)
        log_outcomes(records)
        return positions


def log_outcomes(records: Sequence[Record]) -> None:
    for record in records:
        if record.topic == OUTCOMES:
            outcome = json.loads(record.value or b"{}")
            event_type = record.headers.get("ce_type", b"").decode().partition(".v")[0]
            fields = {
                name: outcome[name] for name in LOGGED_FIELDS if outcome.get(name) is not None
            }
            log.info(event_type, **fields)


@dataclass(frozen=True, slots=True)
class OutcomeSuppressingLog:
    """Drop the outcomes of a generation that is not live. Returns the positions of the other
    records.
    """

    inner: RecordAppender

    async def append(self, records: Sequence[Record]) -> list[Position]:
        remaining = [record for record in records if record.topic != OUTCOMES]
        return await self.inner.append(remaining) if remaining else []


@dataclass(frozen=True, slots=True)
class NotifyingLog:
    """Call `on_append`, which must not block, once the log has the records."""

    inner: RecordAppender
    on_append: Callable[[Sequence[Record]], None]

    async def append(self, records: Sequence[Record]) -> list[Position]:
        positions = await self.inner.append(records)
        self.on_append(records)
        return positions
