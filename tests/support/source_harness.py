"""Apply the changes of a source in memory and read the documents they make."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from engines.blobs import open_blobs
from schemas.events import DocumentReceived
from schemas.sources import DebeziumSource, RowMapping, SourceSpec
from schemas.topics import Record, StoredRecord
from streams.codec import Codec
from streams.sources.change_applier import BatchPosition, ChangeApplier
from streams.sources.debezium import SnapshotEnd, parse_change_events
from streams.sources.raw_producer import RawProducer
from tests.fakes.memory_log import MemoryLog
from tests.fakes.memory_source_store import MemorySourceStore
from tests.support.simulated_table import TOPIC

FIXED_TIME = datetime(2026, 1, 1, tzinfo=UTC)
MAPPING = RowMapping(body=["body"], title="title")
SPEC = SourceSpec(name="notes", connector=DebeziumSource(topic=TOPIC, mapping=MAPPING))
EventOrder = list[int]


class SourceHarness:
    """A source with records from the test, and the resulting events of `raw`."""

    def __init__(self, log: MemoryLog | None = None, mapping: RowMapping = MAPPING) -> None:
        self.log, self.store, self.codec, self.mapping = (
            log or MemoryLog(lambda: FIXED_TIME),
            MemorySourceStore(),
            Codec(),
            mapping,
        )
        self.applier = ChangeApplier(
            self.store,
            RawProducer(SPEC, self.codec, open_blobs("memory:///"), lambda: FIXED_TIME),
            mapping,
            self.log,
        )

    async def create_topics(self) -> None:
        await self.log.create_topics({"raw": 3}, retention_ms={})

    async def apply_records(
        self, records: Sequence[Record], *, batch: int = 3, epoch: int = 1
    ) -> None:
        for start in range(0, len(records), batch):
            changes = [
                saying
                for record in records[start : start + batch]
                for saying in parse_change_events(record, epoch, self.mapping)
            ]
            ended = any(isinstance(saying, SnapshotEnd) for saying in changes)
            await self.applier.apply(
                changes, BatchPosition(TOPIC, 0, start + batch, {0: len(records)} if ended else {})
            )
            await self.applier.end_snapshots()

    async def read_documents(self) -> dict[str, tuple[str | None, str | None]]:
        """Return title and text of each current document by external id."""
        return {
            name: (data.title, data.content.text)
            for name, data in (await self.read_received()).items()
        }

    async def read_received(self) -> dict[str, DocumentReceived]:
        """Return the event of each current document by external id, in the order of the ingress."""
        latest: dict[str, tuple[EventOrder, Any]] = {}
        payloads: dict[str, bytes] = {}
        async for stored in self.log.read("raw"):
            fact = await self._decode(stored, payloads)
            order = [fact.epoch or 1, fact.sequence or 0, 0, fact.step]
            latest_version = latest.get(fact.data.external_id)
            assert (
                latest_version is None
                or latest_version[0] != order
                or latest_version[1] == fact.data
            ), "two different events under one number"
            if latest_version is None or latest_version[0] < order:
                latest[fact.data.external_id] = (order, fact.data)
        return {
            name: data for name, (_, data) in latest.items() if isinstance(data, DocumentReceived)
        }

    async def _decode(self, stored: StoredRecord, payloads: dict[str, bytes]) -> Any:
        event_id, payload = stored.record.headers["ce_id"].decode(), stored.record.value or b""
        name = f"{json.loads(payload)['external_id']} {event_id}"
        assert payloads.setdefault(name, payload) == payload, f"{name} was said twice, differently"
        return await self.codec.decode(stored)
