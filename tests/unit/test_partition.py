"""What one partition holds before it asks to be paused, alone and beside others."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import LogUnavailable, NewerVersion
from schemas.events import Content, DocumentReceived, Fact
from schemas.ports.ledger import Claim
from schemas.records import Position, Record, StoredRecord
from streams.observe import Silent
from streams.partition import Bounds, Held, PartitionSink
from streams.publisher import Publisher
from streams.runner import Patience, Runner, Work
from streams.stage import Counted, Stage, Statement
from tests.property.world import EPOCH, GENERATION, World

BOUNDS = Bounds(queue_bytes=1000, stage_bytes=1500, share_bytes=200)


@dataclass
class GatedRunner:
    """Claims nothing of what comes, as soon as it may."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    observer: Silent = field(default_factory=Silent)
    released: list[int] = field(default_factory=list)

    async def claim(self, records: Sequence[StoredRecord]) -> list[Work]:
        await self.gate.wait()
        return [Work(record) for record in records]

    async def release(self, works: Iterable[Work]) -> None:
        self.released += [work.stored.position.offset for work in works]


@dataclass
class Calls:
    topic: str = "t"
    number: int = 0
    acknowledged: list[int] = field(default_factory=list)
    resumed: int = 0
    kept: int = 0

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
    runner = StuckRunner()
    async with sink(runner) as (one, calls):
        for offset in range(5):
            one.offer(StoredRecord(Record("t", None, b"x", headers.pop(0)), Position("t", 0, offset), EPOCH))
            async with asyncio.timeout(10):
                while one.bytes > 1 or one.queue:
                    await asyncio.sleep(0)
        gc.collect()
        # The loops still look at the last one.
        assert [each() is not None for each in followed][:-1] == [True, False, False, False]
        assert calls.acknowledged == []
    assert runner.released == [0], "closing takes back the attempt at what is not finished"


@dataclass
class Leaving(GatedRunner):
    """Leaves what has an even offset to another program."""

    async def claim(self, records: Sequence[StoredRecord]) -> list[Work]:
        await self.gate.wait()
        return [Work(record, left=record.position.offset % 2 == 0) for record in records]


async def test_what_is_left_to_another_program_stays_unacknowledged_and_takes_no_room() -> None:
    runner = Leaving()
    async with sink(runner) as (one, calls):
        for offset in range(1, 12):
            one.offer(StoredRecord(Record("t", None, bytes(100)), Position("t", 0, offset), EPOCH))
        assert one.full
        runner.gate.set()
        async with asyncio.timeout(10):
            while one.bytes:
                await asyncio.sleep(0)
        assert (calls.acknowledged, calls.resumed, one.full) == ([2], 1, False)


@dataclass
class Upgraded(GatedRunner):
    """As a runner that is older than record number `newer`."""

    newer: int = 3
    asked: list[list[int]] = field(default_factory=list)
    stage: Any = field(default_factory=lambda: Stage("probe", "t", 1, "always"))

    async def claim(self, records: Sequence[StoredRecord]) -> list[Work]:
        self.asked.append([record.position.offset for record in records])
        readable = [Work(record) for record in records if record.position.offset < self.newer]
        if not readable:
            raise NewerVersion("v9")
        return readable


async def test_what_precedes_a_record_of_a_newer_version_is_acknowledged_and_nothing_after_it() -> None:
    runner = Upgraded()
    async with sink(runner) as (one, calls):
        offer(one, 1, 6)
        await until_done(calls, 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (calls.acknowledged, one.bytes, runner.asked) == ([3], 3, [[0, 1, 2, 3, 4, 5], [3, 4, 5]])


@dataclass
class Pruned(GatedRunner):
    forgotten: list[int] = field(default_factory=list)
    stage: Any = field(default_factory=lambda: Stage("probe", "t", 1, "always"))

    async def prune(self, topic: str, partition: int, below: int) -> None:
        self.forgotten.append(below)


async def test_claims_are_forgotten_a_round_late_and_of_what_is_kept_only() -> None:
    runner, calls = Pruned(), Calls()
    runner.gate.set()
    untyped: Any = runner
    one = PartitionSink(untyped, calls, lambda error: pytest.fail(repr(error)), Bounds(prune_every=2))
    for number, kept in enumerate((0, 0, 0, 0, 3, 3, 5, 5, 9, 9)):
        calls.kept = kept
        one.offer(StoredRecord(Record("t", None, b"x"), Position("t", 0, number), EPOCH))
        await until_done(calls, number + 1)
        await asyncio.sleep(0)
    await one.close()
    assert runner.forgotten == [3, 5]


async def test_the_neighbours_of_an_event_that_does_not_end_are_done_before_it(tmp_path: Path) -> None:
    world = World(tmp_path, [], 0, Bounds())
    settled: set[str] = set()
    neighbours = asyncio.Event()

    async def react(counted: Sequence[Counted], ports: Any) -> list[Statement]:
        names = {item.fact.data.external_id for item in counted}
        if len(counted) > 1:
            raise TimeoutError
        if names == {"slow"}:
            await neighbours.wait()
        return []

    class Watched(Silent):
        def finished(self, stage: str, buried_code: str | None) -> None:
            settled.add(buried_code or "fine")
            if len(world.memory.handled) == 3 and sum(handled.reacted for handled in world.memory.handled.values()) == 2:
                neighbours.set()

    for name in ("a", "slow", "b"):
        await world.push(DocumentReceived(external_id=name, content=Content(text=name)), name)
    stage = Stage("probe", "raw", 1, "door", react=react, batch=8)
    ledger: Any = world.ledger
    log: Any = world.log
    runner = Runner(
        stage, ledger, log, world.ports, Publisher("probe", GENERATION, world.codec, lambda: EPOCH), world.codec, Watched(), patience=Patience(0, 0)
    )
    calls = Calls("raw")
    one = PartitionSink(runner, calls, lambda error: pytest.fail(repr(error)), Bounds())
    for record in world.log.topics["raw"]:
        one.offer(record)
    await until_done(calls, 3)
    await one.close()
    assert settled == {"fine"}


@dataclass
class BrokenOffRunner(GatedRunner):
    """Waits for something that is cancelled by somebody else."""

    async def claim(self, records: Sequence[StoredRecord]) -> list[Work]:
        waited = asyncio.get_running_loop().create_future()
        waited.cancel()
        await waited
        raise AssertionError("the wait was cancelled")


async def test_work_that_is_broken_off_by_what_it_waited_for_does_not_leave_its_partition_standing_still() -> None:
    failures: list[BaseException] = []
    runner: Any = BrokenOffRunner()
    opened = PartitionSink(runner, Calls(), failures.append, BOUNDS)
    offer(opened, 1)
    async with asyncio.timeout(10):
        while not failures:
            await asyncio.sleep(0)
    await opened.close()
    assert [type(failure) for failure in failures] == [LogUnavailable], "told once, and not of those that closing ended"
