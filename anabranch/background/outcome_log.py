"""A log that says in one line what became of each document, as its outcome is published; no text of a document enters it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from schemas.ports.log import EventLog
from schemas.records import Position, Record, StoredRecord
from streams.topics import OUTCOMES

log = structlog.get_logger(__name__)
TOLD = ("document_id", "tenant", "event_id", "source", "chunks_count", "code")


@dataclass(frozen=True, slots=True)
class AroundLog:
    """An EventLog around another."""

    inner: EventLog

    async def append(self, records: Sequence[Record]) -> list[Position]:
        return await self.inner.append(records)

    async def create_topics(self, partitions: Mapping[str, int], *, retention_ms: Mapping[str, int]) -> None:
        await self.inner.create_topics(partitions, retention_ms=retention_ms)

    async def delete_topics(self, topics: Collection[str]) -> None:
        await self.inner.delete_topics(topics)

    async def ends(self, topic: str) -> dict[int, tuple[int, int]]:
        return await self.inner.ends(topic)

    def read(
        self, topic: str, start: Mapping[int, int] | None = None, end: Mapping[int, int] | None = None, *, behind: Mapping[int, int] | None = None
    ) -> AsyncIterator[StoredRecord]:
        return self.inner.read(topic, start, end, behind=behind)

    async def read_at(self, position: Position) -> StoredRecord | None:
        return await self.inner.read_at(position)

    async def keeps(self, topic: str) -> timedelta | None:
        return await self.inner.keeps(topic)

    async def keeps_at_least(self, topic: str) -> timedelta | None:
        return await self.inner.keeps_at_least(topic)

    async def expired(self, topic: str) -> dict[int, int]:
        return await self.inner.expired(topic)

    async def acknowledged(self, group: str, topic: str) -> dict[int, int]:
        return await self.inner.acknowledged(group, topic)

    async def close(self) -> None:
        await self.inner.close()


class OutcomeLog(AroundLog):
    """Tells of each outcome when the log has it."""

    async def append(self, records: Sequence[Record]) -> list[Position]:
        positions = await self.inner.append(records)
        for record in records:
            if record.topic == OUTCOMES:
                _tell(record)
        return positions


class WithoutOutcomes(AroundLog):
    """For a generation that does not answer: what becomes of a document in it is nobody's business yet. Gives the places of the records that it keeps."""

    async def append(self, records: Sequence[Record]) -> list[Position]:
        kept = [record for record in records if record.topic != OUTCOMES]
        return await self.inner.append(kept) if kept else []


def _tell(record: Record) -> None:
    outcome = json.loads(record.value or b"{}")
    kind = record.headers.get("ce_type", b"").decode().partition(".v")[0]
    log.info(kind, **{name: outcome[name] for name in TOLD if outcome.get(name) is not None})
