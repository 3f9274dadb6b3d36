"""What one partition holds before it asks to be paused, alone and beside others."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from schemas.events import Content, Fact
from schemas.ports.ledger import Claim
from schemas.records import Position, Record, StoredRecord
from streams.observe import Silent
from streams.partition import Bounds, Held, PartitionSink
from streams.runner import Work
from streams.stage import Counted, Stage
from tests.property.world import EPOCH

BOUNDS = Bounds(queue_bytes=1000, stage_bytes=1500, share_bytes=200)


@dataclass
class GatedRunner:
    """Claims nothing of what comes, as soon as it may."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    observer: Silent = field(default_factory=Silent)

    async def claim(self, records: Sequence[StoredRecord]) -> list[Work]:
        await self.gate.wait()
        return [Work(record) for record in records]


@dataclass
class Calls:
    topic: str = "t"
    number: int = 0
    acknowledged: list[int] = field(default_factory=list)
    resumed: int = 0

    def acknowledge(self, next_offset: int) -> None:
        self.acknowledged.append(next_offset)

    def resume(self) -> None:
        self.resumed += 1


@asynccontextmanager
async def sink(runner: GatedRunner, together: Held | None = None) -> AsyncIterator[tuple[PartitionSink, Calls]]:
    calls, unused = Calls(), pytest.fail
    untyped: Any = runner
    opened = PartitionSink(untyped, calls, lambda error: unused(repr(error)), BOUNDS, together)
    yield opened, calls
    await opened.close()


def offer(to: PartitionSink, size: int, times: int = 1) -> None:
    for number in range(times):
        to.offer(StoredRecord(Record("t", None, bytes(size)), Position("t", 0, number), EPOCH))


async def until_done(calls: Calls, offset: int) -> None:
    async with asyncio.timeout(10):
        while calls.acknowledged[-1:] != [offset]:
            await asyncio.sleep(0)


async def test_a_partition_is_full_by_its_bytes_and_resumed_once_when_half_of_them_are_done() -> None:
    runner = GatedRunner()
    async with sink(runner) as (one, calls):
        offer(one, 100, 10)
        assert not one.full
        offer(one, 1)
        assert one.full
        runner.gate.set()
        await until_done(calls, 1)
        assert (one.bytes, one.full, calls.resumed) == (0, False, 1)


async def test_partitions_together_hold_what_the_stage_may_and_each_its_share() -> None:
    runner, together = GatedRunner(), Held()
    async with sink(runner, together) as (one, _), sink(runner, together) as (two, _), sink(runner, together) as (three, _):
        offer(one, 900)
        offer(two, 500)
        assert not (one.full or two.full)
        offer(three, 150)
        assert together.bytes == 1550
        assert one.full and two.full, "the stage has too much"
        assert not three.full, "and this one has not had its share"


async def test_a_partition_paused_for_the_others_sake_goes_on_when_its_own_records_are_done() -> None:
    slow, quick, together = GatedRunner(), GatedRunner(), Held()
    async with sink(slow, together) as (crowd, _), sink(slow, together) as (more, _), sink(quick, together) as (one, calls):
        offer(crowd, 1000)
        offer(more, 1000)
        offer(one, 300)
        assert one.full
        quick.gate.set()
        await until_done(calls, 1)
        assert (calls.resumed, one.full) == (1, False)
        assert together.bytes == 2000


async def test_a_closed_partition_gives_back_what_it_held() -> None:
    together = Held()
    async with sink(GatedRunner(), together) as (one, _):
        offer(one, 700)
        assert together.bytes == 700
    assert together.bytes == 0


class Followed(dict[str, bytes]):
    """Headers that a weak reference can follow."""


@dataclass
class StuckRunner(GatedRunner):
    """The reaction to the first record never ends; the others need none."""

    stage: Any = field(default_factory=lambda: Stage("probe", "t", 1, "always"))

    async def claim(self, records: Sequence[StoredRecord]) -> list[Work]:
        counted: Any = Counted(Fact(UUID(int=1), Content(text="x"), "s", "e", None), Claim.OWED)  # type: ignore[type-var]
        return [Work(record, None if record.position.offset else counted) for record in records]

    async def react(self, works: Sequence[Work]) -> None:
        await asyncio.Event().wait()


async def test_what_is_finished_behind_a_long_reaction_keeps_its_place_and_not_its_bytes() -> None:
    headers = [Followed() for _ in range(5)]
    followed = [weakref.ref(each) for each in headers]
    async with sink(StuckRunner()) as (one, calls):
        for offset in range(5):
            one.offer(StoredRecord(Record("t", None, b"x", headers.pop(0)), Position("t", 0, offset), EPOCH))
            async with asyncio.timeout(10):
                while one.bytes > 1 or one.queue:
                    await asyncio.sleep(0)
        gc.collect()
        # The loops still look at the last one.
        assert [each() is not None for each in followed][:-1] == [True, False, False, False]
        assert calls.acknowledged == []
