"""Changes of a table in any order and number of deliveries give its documents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from schemas.sources import RowMapping
from schemas.topics import Position, Record
from tests.fakes.memory_log import MemoryLog
from tests.support.repetitions import draw_examples
from tests.support.simulated_table import SimulatedTable
from tests.support.source_harness import FIXED_TIME, SPEC, SourceHarness


class ProcessCrash(Exception):
    """A simulated end of the process."""


class CrashingLog(MemoryLog):
    """Crash before or after an append, each with probability `share`."""

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


@draw_examples(300)
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
    """Generate histories whose unique titles move between rows."""
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


@draw_examples(300)
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


@draw_examples(50)
@given(table_histories(), table_histories(), st.randoms(use_true_random=False))
def test_reset_ignores_positions_of_earlier_epoch(
    before: SimulatedTable, after: SimulatedTable, random: Random
) -> None:
    """A restored database restarts at lower positions while older records arrive late."""

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


@draw_examples(150)
@given(table_histories(), st.integers(0, 2**32), st.sampled_from([0.05, 0.2, 0.5]))
def test_crashing_source_neither_loses_nor_contradicts_events(
    table: SimulatedTable, seed: int, share: float
) -> None:
    """Redeliver unacknowledged records, and emit pending events after a restart."""

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
