"""Whatever order the changes of a table arrive in, and however often, the documents end as the
table does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engines.blobs import open_blobs
from schemas.records import Position, Record, StoredRecord
from schemas.sources import DebeziumSource, RowMapping, SourceSpec
from streams.codec import Codec
from streams.memory_log import MemoryLog
from streams.sources.change_applier import BatchPosition, ChangeApplier
from streams.sources.debezium import SnapshotEnd, parse_change_events
from streams.sources.memory_store import MemorySourceStore
from streams.sources.raw_producer import RawProducer
from tests.simulated_table import TOPIC, SimulatedTable

MAPPING = RowMapping(body=["body"], title="title")
SPEC = SourceSpec(name="notes", takes=DebeziumSource(topic=TOPIC, mapping=MAPPING))
FIXED_TIME = datetime(2026, 1, 1, tzinfo=UTC)
EventOrder = list[int]


class ProcessCrash(Exception):
    """The process ended here."""


class CrashingLog(MemoryLog):
    """Ends the process before or after an append, as often as `crashes` says."""

    def __init__(self, crashes: Random, share: float) -> None:
        super().__init__(lambda: FIXED_TIME)
        self.rng, self.crash_rate = crashes, share

    async def append(self, records: Sequence[Record]) -> list[Position]:
        if self.rng.random() < self.crash_rate:
            raise ProcessCrash
        positions = await super().append(records)
        if self.rng.random() < self.crash_rate:
            raise ProcessCrash
        return positions


class SourceHarness:
    """A source whose records come as the test likes, and what stands in `raw` after it."""

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
        """By external id, as the door orders them: title and text of what is there at last."""
        latest: dict[str, tuple[EventOrder, Any]] = {}
        payloads: dict[str, bytes] = {}
        async for stored in self.log.read("raw"):
            fact = await self._decode(stored, payloads)
            order = [fact.epoch or 1, fact.sequence or 0, 0, fact.step]
            known = latest.get(fact.data.external_id)
            assert known is None or known[0] != order or known[1] == fact.data, (
                "two different events under one number"
            )
            if known is None or known[0] < order:
                latest[fact.data.external_id] = (order, fact.data)
        return {
            name: (data.title, data.content.text)
            for name, (_, data) in latest.items()
            if hasattr(data, "content")
        }

    async def _decode(self, stored: StoredRecord, payloads: dict[str, bytes]) -> Any:
        event_id, payload = stored.record.headers["ce_id"].decode(), stored.record.value or b""
        name = f"{json.loads(payload)['external_id']} {event_id}"
        assert payloads.setdefault(name, payload) == payload, f"{name} was said twice, differently"
        return await self.codec.decode(stored)


def list_expected_documents(table: SimulatedTable) -> dict[str, tuple[str | None, str | None]]:
    return {str(key): (row["title"] or None, row["body"]) for key, row in table.rows.items()}


@st.composite
def table_histories(draw: st.DrawFn) -> SimulatedTable:
    table = SimulatedTable()
    for number in range(draw(st.integers(1, 14))):
        keys = sorted(table.rows)
        steps = ["insert"] * 3 + (
            ["retitle", "retitle", "rewrite", "rename", "delete", "forget", "snapshot", "truncate"]
            if keys
            else []
        )
        step, key = draw(st.sampled_from(steps)), draw(st.sampled_from(keys)) if keys else 0
        match step:
            case "insert" if (new := draw(st.integers(1, 5))) not in table.rows:
                table.insert(new, f"body {number}", draw(st.sampled_from(["", f"title {number}"])))
            case "retitle":
                table.update_title(key, f"title {number}")
            case "rewrite":
                table.update_body(key, f"body {number}")
            case "rename" if (new := draw(st.integers(1, 8))) not in table.rows:
                table.change_key(key, new)
            case "delete":
                table.delete(key)
            case "truncate":
                table.truncate()
            case "snapshot":
                table.snapshot()
            case "forget" if len(keys) > 1:
                table.delete_uncaptured(key)
                table.snapshot()
    return table


@settings(max_examples=300, deadline=None)
@given(table_histories(), st.randoms(use_true_random=False), st.integers(1, 5), st.booleans())
def test_any_arrival_order_yields_table_rows(
    table: SimulatedTable, random: Random, batch: int, twice: bool
) -> None:
    async def run() -> None:
        reading = SourceHarness()
        await reading.create_topics()
        records = table.records * (2 if twice else 1)
        random.shuffle(records)
        await reading.apply_records(records, batch=batch)
        assert await reading.read_documents() == list_expected_documents(table)
        assert await reading.store.fetch_pending(SPEC.name, "", 10) == []

    asyncio.run(run())


@st.composite
def naming_histories(draw: st.DrawFn) -> SimulatedTable:
    """Titles are unique at any moment, and go from row to row."""
    table = SimulatedTable()
    for number in range(draw(st.integers(2, 12))):
        key, name = draw(st.integers(1, 3)), draw(st.sampled_from("abc"))
        free = all(row["title"] != name for row in table.rows.values())
        match draw(
            st.sampled_from(["name", "name", "name", "rewrite", "delete", "snapshot", "truncate"])
        ):
            case "name" if free and key in table.rows:
                table.update_title(key, name)
            case "name" if free:
                table.insert(key, f"body {number}", name)
            case "rewrite" if key in table.rows:
                table.update_body(key, f"body {number}")
            case "delete" if key in table.rows:
                table.delete(key)
            case "snapshot" if table.rows:
                table.snapshot()
            case "truncate":
                table.truncate()
    return table


@settings(max_examples=300, deadline=None)
@given(naming_histories(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_reused_external_id_belongs_to_its_new_row(
    table: SimulatedTable, random: Random, batch: int
) -> None:
    async def run() -> None:
        reading = SourceHarness(mapping=RowMapping(body=["body"], id=["title"], title="title"))
        await reading.create_topics()
        records = list(table.records)
        random.shuffle(records)
        await reading.apply_records(records, batch=batch)
        assert await reading.read_documents() == {
            row["title"]: (row["title"], row["body"]) for row in table.rows.values()
        }
        assert await reading.store.fetch_pending(SPEC.name, "", 10) == []

    asyncio.run(run())


@settings(max_examples=50, deadline=None)
@given(table_histories(), table_histories(), st.randoms(use_true_random=False))
def test_reset_ignores_positions_of_earlier_epoch(
    before: SimulatedTable, after: SimulatedTable, random: Random
) -> None:
    """A restored database begins at lower positions; records of before may still come late."""

    async def run() -> None:
        reading = SourceHarness()
        await reading.create_topics()
        for record in before.records:
            await reading.apply_records([record])
        if not after.rows:
            after.insert(1, "the only one")
        after.snapshot()
        records = [(record, 2) for record in after.records] + [
            (record, 1) for record in random.sample(before.records, len(before.records) // 2)
        ]
        random.shuffle(records)
        for record, epoch in records:
            await reading.apply_records([record], epoch=epoch)
        assert await reading.read_documents() == list_expected_documents(after)

    asyncio.run(run())


@settings(max_examples=150, deadline=None)
@given(table_histories(), st.integers(0, 2**32), st.sampled_from([0.05, 0.2, 0.5]))
def test_crashing_source_neither_loses_nor_contradicts_events(
    table: SimulatedTable, seed: int, share: float
) -> None:
    """What was not acknowledged comes again; what was written down as owed is said by whoever
    starts next.
    """

    async def run() -> None:
        random = Random(seed)
        reading = SourceHarness(CrashingLog(random, share))
        await reading.create_topics()
        records = list(table.records)
        random.shuffle(records)
        for record in records:
            await until_it_works(lambda record=record: reading.apply_records([record]))
        await until_it_works(reading.applier.emit_pending)
        assert await reading.read_documents() == list_expected_documents(table)

    async def until_it_works(call: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await call()
                return
            except ProcessCrash:
                await asyncio.sleep(0)

    asyncio.run(run())
