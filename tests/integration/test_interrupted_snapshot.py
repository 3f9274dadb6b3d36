"""Read a table's snapshot in pieces with long interruptions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from engines.blobs import open_blobs
from schemas.sources import DebeziumSource, DeclaredSource, RowMapping, SourceSpec
from schemas.topics import Record
from sql.catalog.sources import PgSourceStore
from sql.database import close_pool, open_pool
from streams.codec import Codec
from streams.retry import Backoff
from streams.sources.change_applier import BatchPosition, ChangeApplier, ChangeDeadLetters
from streams.sources.debezium import parse_change_events
from streams.sources.raw_producer import RawProducer
from streams.sources.topic_reader import TopicReader
from tests.fakes.memory_log import MemoryLog
from tests.support.raw_documents import read_current_documents
from tests.support.simulated_table import TOPIC, SimulatedTable

RECORD_TIME = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = SourceSpec(
    name="notes", connector=DebeziumSource(topic=TOPIC, mapping=RowMapping(body=["body"]))
)


class ScriptedReader:
    """A reader whose records come from the test."""

    def __init__(self, store: PgSourceStore) -> None:
        self.log, blobs, codec, takes = (
            MemoryLog(lambda: RECORD_TIME),
            open_blobs("memory:///"),
            Codec(),
            SPEC.connector,
        )
        assert isinstance(takes, DebeziumSource)
        self.applier = ChangeApplier(
            store, RawProducer(SPEC, codec, blobs, lambda: RECORD_TIME), takes.mapping, self.log
        )
        undertaker = ChangeDeadLetters(SPEC, codec, blobs, self.log, lambda: RECORD_TIME)
        self.reader = TopicReader(
            DeclaredSource(SPEC, 1),
            takes,
            self.applier,
            self.log,
            self.log,
            "notes",
            undertaker,
            store,
            Backoff(),
        )

    async def read(self, records: Sequence[Record], up_to: int, *, end: int) -> None:
        changes = [
            change
            for record in records
            for change in parse_change_events(record, 1, self.reader.config.mapping)
        ]
        await self.applier.apply(changes, BatchPosition(TOPIC, 0, up_to, {0: end}))


async def test_unread_snapshot_rows_are_not_treated_as_deleted(database: str) -> None:
    table = SimulatedTable()
    for key in (1, 2, 3):
        table.insert(key, f"body {key}")
    inserted = list(table.records)
    table.delete_uncaptured(3)
    table.snapshot()
    late, last = table.records[3:]
    pool = await open_pool(database, size=2, name="test")
    try:
        source = ScriptedReader(PgSourceStore(pool, database))
        await source.log.create_topics({"raw": 1, TOPIC: 1}, retention_ms={})
        await source.log.append([*inserted, last, late])
        await source.read([*inserted, last], 4, end=6)
        await pool.execute(
            "update source_states set last_change_at = last_change_at - interval '1 day'"
        )
        await pool.execute("update source_tables set ended_at = ended_at - interval '1 day'")
        await source.applier.end_snapshots(source.reader.is_snapshot_read)
        assert await read_current_documents(source.log) == {"1", "2", "3"}
        await source.read([late], 5, end=6)
        await source.applier.end_snapshots()
        assert await read_current_documents(source.log) == {"1", "2", "3"}, (
            "the offset before the end may hold a record"
        )
        await source.applier.end_snapshots(source.reader.is_snapshot_read)
        assert await read_current_documents(source.log) == {"1", "2"}, "it holds none"
    finally:
        await close_pool(pool)
