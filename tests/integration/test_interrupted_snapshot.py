"""A snapshot of a table may be read in pieces, with a long time between them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from engines.blobs import open_blobs
from schemas.records import Record
from schemas.sources import DebeziumSource, DeclaredSource, RowMapping, SourceSpec
from sql.pool import close_pool, open_pool
from sql.source_state import PgSourceStore
from streams.codec import Codec
from streams.memory import MemoryLog
from streams.runner import Patience
from streams.sources.applying import Applier, Place
from streams.sources.burying import Undertaker
from streams.sources.delivery import Delivery
from streams.sources.envelope import sayings
from streams.sources.topic import TopicReader
from tests.changing_table import TOPIC, ChangingTable
from tests.said_by_sources import documents_there

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = SourceSpec(name="notes", takes=DebeziumSource(topic=TOPIC, mapping=RowMapping(body=["body"])))


class Interrupted:
    """A reader whose records the test hands over."""

    def __init__(self, store: PgSourceStore) -> None:
        self.log, blobs, codec, takes = MemoryLog(lambda: MOMENT), open_blobs("memory:///"), Codec(), SPEC.takes
        assert isinstance(takes, DebeziumSource)
        self.applier = Applier(store, Delivery(SPEC, codec, blobs, lambda: MOMENT), takes.mapping, self.log)
        undertaker = Undertaker(SPEC, codec, blobs, self.log, lambda: MOMENT)
        self.reader = TopicReader(DeclaredSource(SPEC, 1), takes, self.applier, self.log, self.log, "notes", undertaker, store, Patience())

    async def read(self, records: Sequence[Record], up_to: int, *, end: int) -> None:
        said = [saying for record in records for saying in sayings(record, 1, self.reader.takes.mapping)]
        await self.applier.apply(said, Place(TOPIC, 0, up_to, {0: end}))


async def test_rows_of_a_snapshot_that_are_still_to_be_read_are_not_taken_for_gone_however_long_nobody_reads(database: str) -> None:
    table = ChangingTable()
    for key in (1, 2, 3):
        table.insert(key, f"body {key}")
    inserted = list(table.records)
    table.forget(3)
    table.snapshot()
    late, last = table.records[3:]
    pool = await open_pool(database, size=2, name="test")
    try:
        source = Interrupted(PgSourceStore(pool))
        await source.log.create_topics({"raw": 1, TOPIC: 1}, retention_ms={})
        await source.log.append([*inserted, last, late])
        await source.read([*inserted, last], 4, end=6)
        await pool.execute("update source_states set passed_at = passed_at - interval '1 day'")
        await pool.execute("update source_tables set ended_at = ended_at - interval '1 day'")
        await source.applier.end_snapshots(source.reader.is_read)
        assert await documents_there(source.log) == {"1", "2", "3"}
        await source.read([late], 5, end=6)
        await source.applier.end_snapshots()
        assert await documents_there(source.log) == {"1", "2", "3"}, "the offset before the end may hold a record"
        await source.applier.end_snapshots(source.reader.is_read)
        assert await documents_there(source.log) == {"1", "2"}, "it holds none"
    finally:
        await close_pool(pool)
