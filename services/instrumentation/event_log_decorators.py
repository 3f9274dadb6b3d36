"""Decorators of an event log: log outcomes, suppress outcomes, report published records."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from schemas.ports.log import EventLog
from schemas.records import Position, Record, StoredRecord
from streams.topics import OUTCOMES

log = structlog.get_logger(__name__)
LOGGED_FIELDS = ("document_id", "tenant", "event_id", "source", "chunks_count", "code")


@dataclass(frozen=True, slots=True)
class EventLogDecorator:
    inner: EventLog

    async def append(self, records: Sequence[Record]) -> list[Position]:
        return await self.inner.append(records)

    async def create_topics(
        self, partitions: Mapping[str, int], *, retention_ms: Mapping[str, int]
    ) -> None:
        await self.inner.create_topics(partitions, retention_ms=retention_ms)

    async def delete_topics(self, topics: Collection[str]) -> None:
        await self.inner.delete_topics(topics)

    async def fetch_offset_bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return await self.inner.fetch_offset_bounds(topic)

    def read(
        self,
        topic: str,
        start: Mapping[int, int] | None = None,
        end: Mapping[int, int] | None = None,
        *,
        resume_after: Mapping[int, int] | None = None,
    ) -> AsyncIterator[StoredRecord]:
        return self.inner.read(topic, start, end, resume_after=resume_after)

    async def read_at(self, position: Position) -> StoredRecord | None:
        return await self.inner.read_at(position)

    async def fetch_max_retention(self, topic: str) -> timedelta | None:
        return await self.inner.fetch_max_retention(topic)

    async def fetch_min_retention(self, topic: str) -> timedelta | None:
        return await self.inner.fetch_min_retention(topic)

    async def fetch_expired_offsets(self, topic: str) -> dict[int, int]:
        return await self.inner.fetch_expired_offsets(topic)

    async def fetch_committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        return await self.inner.fetch_committed_offsets(group, topic)

    async def close(self) -> None:
        await self.inner.close()


class OutcomeLoggingLog(EventLogDecorator):
    """Log one line per published outcome. No text of a document enters it."""

    async def append(self, records: Sequence[Record]) -> list[Position]:
        positions = await self.inner.append(records)
        for record in records:
            if record.topic == OUTCOMES:
                _log_outcome(record)
        return positions


class OutcomeSuppressingLog(EventLogDecorator):
    """Drop the outcomes of a generation that is not live. Returns the positions of the other
    records.
    """

    async def append(self, records: Sequence[Record]) -> list[Position]:
        remaining = [record for record in records if record.topic != OUTCOMES]
        return await self.inner.append(remaining) if remaining else []


@dataclass(frozen=True, slots=True)
class NotifyingLog(EventLogDecorator):
    """Call `on_append`, which must not block, once the log has the records."""

    on_append: Callable[[Sequence[Record]], None]

    async def append(self, records: Sequence[Record]) -> list[Position]:
        positions = await self.inner.append(records)
        self.on_append(records)
        return positions


def _log_outcome(record: Record) -> None:
    outcome = json.loads(record.value or b"{}")
    event_type = record.headers.get("ce_type", b"").decode().partition(".v")[0]
    log.info(
        event_type,
        **{name: outcome[name] for name in LOGGED_FIELDS if outcome.get(name) is not None},
    )
