"""Whatever order the changes of a table arrive in, and however often, the documents end as the table does."""

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
from streams.memory import MemoryLog
from streams.sources.applying import Applier, Place
from streams.sources.delivery import Delivery
from streams.sources.envelope import SnapshotEnd, sayings
from streams.sources.memory import MemorySourceStore
from tests.changing_table import TOPIC, ChangingTable

MAPPING = RowMapping(body=["body"], title="title")
SPEC = SourceSpec(name="notes", takes=DebeziumSource(topic=TOPIC, mapping=MAPPING))
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
Order = list[int]


class Crash(Exception):
    """The process ended here."""


class CrashingLog(MemoryLog):
    """Ends the process before or after an append, as often as `crashes` says."""

    def __init__(self, crashes: Random, share: float) -> None:
        super().__init__(lambda: MOMENT)
        self.crashes, self.share = crashes, share

    async def append(self, records: Sequence[Record]) -> list[Position]:
        if self.crashes.random() < self.share:
            raise Crash
        positions = await super().append(records)
        if self.crashes.random() < self.share:
            raise Crash
        return positions


class Reading:
    """A source whose records come as the test likes, and what stands in `raw` after it."""

    def __init__(self, log: MemoryLog | None = None, mapping: RowMapping = MAPPING) -> None:
        self.log, self.store, self.codec, self.mapping = log or MemoryLog(lambda: MOMENT), MemorySourceStore(), Codec(), mapping
        self.applier = Applier(self.store, Delivery(SPEC, self.codec, open_blobs("memory:///"), lambda: MOMENT), mapping, self.log)

    async def begin(self) -> None:
        await self.log.create_topics({"raw": 3}, retention_ms={})

    async def take(self, records: Sequence[Record], *, batch: int = 3, epoch: int = 1) -> None:
        for start in range(0, len(records), batch):
            said = [saying for record in records[start : start + batch] for saying in sayings(record, epoch, self.mapping)]
            ended = any(isinstance(saying, SnapshotEnd) for saying in said)
            await self.applier.apply(said, Place(TOPIC, 0, start + batch, {0: len(records)} if ended else {}))
            await self.applier.end_snapshots()

    async def documents(self) -> dict[str, tuple[str | None, str | None]]:
        """By external id, as the door orders them: title and text of what is there at last."""
        latest: dict[str, tuple[Order, Any]] = {}
        payloads: dict[str, bytes] = {}
        async for stored in self.log.read("raw"):
            fact = await self._fact(stored, payloads)
            order = [fact.epoch or 1, fact.sequence or 0, 0, fact.step]
            known = latest.get(fact.data.external_id)
            assert known is None or known[0] != order or known[1] == fact.data, "two different events under one number"
            if known is None or known[0] < order:
                latest[fact.data.external_id] = (order, fact.data)
        return {name: (data.title, data.content.text) for name, (_, data) in latest.items() if hasattr(data, "content")}

    async def _fact(self, stored: StoredRecord, payloads: dict[str, bytes]) -> Any:
        event_id, payload = stored.record.headers["ce_id"].decode(), stored.record.value or b""
        name = f"{json.loads(payload)['external_id']} {event_id}"
        assert payloads.setdefault(name, payload) == payload, f"{name} was said twice, differently"
        return await self.codec.decode(stored)


def as_documents(table: ChangingTable) -> dict[str, tuple[str | None, str | None]]:
    return {str(key): (row["title"] or None, row["body"]) for key, row in table.rows.items()}


@st.composite
def histories(draw: st.DrawFn) -> ChangingTable:
    table = ChangingTable()
    for number in range(draw(st.integers(1, 14))):
        keys = sorted(table.rows)
        steps = ["insert"] * 3 + (["retitle", "retitle", "rewrite", "rename", "delete", "forget", "snapshot", "truncate"] if keys else [])
        step, key = draw(st.sampled_from(steps)), draw(st.sampled_from(keys)) if keys else 0
        match step:
            case "insert" if (new := draw(st.integers(1, 5))) not in table.rows:
                table.insert(new, f"body {number}", draw(st.sampled_from(["", f"title {number}"])))
            case "retitle":
                table.retitle(key, f"title {number}")
            case "rewrite":
                table.rewrite(key, f"body {number}")
            case "rename" if (new := draw(st.integers(1, 8))) not in table.rows:
                table.rename(key, new)
            case "delete":
                table.delete(key)
            case "truncate":
                table.truncate()
            case "snapshot":
                table.snapshot()
            case "forget" if len(keys) > 1:
                table.forget(key)
                table.snapshot()
    return table


@settings(max_examples=300, deadline=None)
@given(histories(), st.randoms(use_true_random=False), st.integers(1, 5), st.booleans())
def test_any_order_of_arrival_ends_in_the_rows_of_the_table(table: ChangingTable, random: Random, batch: int, twice: bool) -> None:
    async def run() -> None:
        reading = Reading()
        await reading.begin()
        records = table.records * (2 if twice else 1)
        random.shuffle(records)
        await reading.take(records, batch=batch)
        assert await reading.documents() == as_documents(table)
        assert await reading.store.owed(SPEC.name, "", 10) == []

    asyncio.run(run())


@st.composite
def naming_histories(draw: st.DrawFn) -> ChangingTable:
    """Titles are unique at any moment, and go from row to row."""
    table = ChangingTable()
    for number in range(draw(st.integers(2, 12))):
        key, name = draw(st.integers(1, 3)), draw(st.sampled_from("abc"))
        free = all(row["title"] != name for row in table.rows.values())
        match draw(st.sampled_from(["name", "name", "name", "rewrite", "delete", "snapshot", "truncate"])):
            case "name" if free and key in table.rows:
                table.retitle(key, name)
            case "name" if free:
                table.insert(key, f"body {number}", name)
            case "rewrite" if key in table.rows:
                table.rewrite(key, f"body {number}")
            case "delete" if key in table.rows:
                table.delete(key)
            case "snapshot" if table.rows:
                table.snapshot()
            case "truncate":
                table.truncate()
    return table


@settings(max_examples=300, deadline=None)
@given(naming_histories(), st.randoms(use_true_random=False), st.integers(1, 5))
def test_a_name_that_one_row_gave_up_is_the_document_of_the_row_that_took_it(table: ChangingTable, random: Random, batch: int) -> None:
    async def run() -> None:
        reading = Reading(mapping=RowMapping(body=["body"], id=["title"], title="title"))
        await reading.begin()
        records = list(table.records)
        random.shuffle(records)
        await reading.take(records, batch=batch)
        assert await reading.documents() == {row["title"]: (row["title"], row["body"]) for row in table.rows.values()}
        assert await reading.store.owed(SPEC.name, "", 10) == []

    asyncio.run(run())


@settings(max_examples=50, deadline=None)
@given(histories(), histories(), st.randoms(use_true_random=False))
def test_after_a_reset_the_numbers_of_before_count_for_nothing(before: ChangingTable, after: ChangingTable, random: Random) -> None:
    """A restored database begins at lower positions; records of before may still come late."""

    async def run() -> None:
        reading = Reading()
        await reading.begin()
        for record in before.records:
            await reading.take([record])
        if not after.rows:
            after.insert(1, "the only one")
        after.snapshot()
        records = [(record, 2) for record in after.records] + [(record, 1) for record in random.sample(before.records, len(before.records) // 2)]
        random.shuffle(records)
        for record, epoch in records:
            await reading.take([record], epoch=epoch)
        assert await reading.documents() == as_documents(after)

    asyncio.run(run())


@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(0, 2**32), st.sampled_from([0.05, 0.2, 0.5]))
def test_a_process_that_ends_at_any_moment_loses_nothing_and_says_nothing_twice_differently(table: ChangingTable, seed: int, share: float) -> None:
    """What was not acknowledged comes again; what was written down as owed is said by whoever starts next."""

    async def run() -> None:
        random = Random(seed)
        reading = Reading(CrashingLog(random, share))
        await reading.begin()
        records = list(table.records)
        random.shuffle(records)
        for record in records:
            await until_it_works(lambda record=record: reading.take([record]))
        await until_it_works(reading.applier.say_what_is_owed)
        assert await reading.documents() == as_documents(table)

    async def until_it_works(call: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await call()
                return
            except Crash:
                await asyncio.sleep(0)

    asyncio.run(run())
