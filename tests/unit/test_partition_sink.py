"""Buffering and pausing of one partition, alone and beside others.

A stage consumer restarts its reading, however that ends, until it is stopped.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import FatalError, LogUnavailable, NewerVersion
from schemas.events import Content, DocumentReceived, Event
from schemas.ports.ledger import ClaimStatus
from schemas.ports.log import OpenSink
from schemas.topics import Position, Record, StoredRecord
from streams import stage_consumer
from streams.partition_sink import ByteBudget, PartitionLimits, PartitionSink
from streams.publisher import Publisher
from streams.retry import Backoff
from streams.runner import StageRunner, WorkItem
from streams.stage import Emission, Instrumentation, PendingEvent, Stage
from streams.stage_consumer import StageConsumer
from tests.support.eventually import eventually
from tests.support.simulated_pipeline import EPOCH, GENERATION, SimulatedPipeline


@dataclass
class ScriptedSubscription:
    """A subscriber whose reads end in the given ways, in turn; the last one continues."""

    outcomes: list[Callable[[], Awaitable[None]]]
    run_count: int = 0
    reading: asyncio.Event = field(default_factory=asyncio.Event)

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> ScriptedSubscription:
        return self

    async def run(self) -> None:
        self.run_count += 1
        if self.run_count <= len(self.outcomes):
            await self.outcomes[self.run_count - 1]()
        else:
            self.reading.set()
            await asyncio.Event().wait()


async def await_cancelled_future() -> None:
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


async def return_normally() -> None:
    return None


async def raise_unavailable() -> None:
    raise LogUnavailable("away")


async def raise_fatal() -> None:
    raise FatalError("a bug")


def make_consumer(readings: ScriptedSubscription) -> StageConsumer:
    runner: Any = SimpleNamespace(
        publisher=SimpleNamespace(generation=None),
        stage=SimpleNamespace(name="probe", serves_all_generations=True),
    )
    return StageConsumer(runner, readings, "things", group="g")


async def test_ended_subscription_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_consumer, "RETRY_DELAY_S", 0)
    readings = ScriptedSubscription([await_cancelled_future, return_normally, raise_unavailable])
    running = asyncio.create_task(make_consumer(readings).run())
    async with asyncio.timeout(60):
        await readings.reading.wait()
    assert readings.run_count == 4
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_fatal_error_stops_the_consumer() -> None:
    readings = ScriptedSubscription([raise_fatal])
    with pytest.raises(FatalError):
        await make_consumer(readings).run()
    assert readings.run_count == 1


BOUNDS = PartitionLimits(queue_bytes=1000, stage_bytes=1500, reserved_bytes=200)


@dataclass
class GatedRunner:
    """Claims no events once its gate is open."""

    stage: Any = field(default_factory=lambda: Stage("probe", "t", 1, "always"))
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    observer: Instrumentation = field(default_factory=Instrumentation)
    released: list[int] = field(default_factory=list)

    async def claim(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        await self.gate.wait()
        return [WorkItem(record) for record in records]

    async def release(self, works: Iterable[WorkItem]) -> None:
        self.released += [work.stored_record.position.offset for work in works]


@dataclass
class RecordingPartition:
    topic: str = "t"
    number: int = 0
    acknowledged: list[int] = field(default_factory=list)
    resume_count: int = 0
    committed_offset: int = 0

    def acknowledge(self, next_offset: int) -> None:
        self.acknowledged.append(next_offset)

    def resume(self) -> None:
        self.resume_count += 1


@asynccontextmanager
async def open_sink(
    runner: Any, together: ByteBudget | None = None, limits: PartitionLimits = BOUNDS
) -> AsyncIterator[tuple[PartitionSink, RecordingPartition]]:
    calls = RecordingPartition()
    opened = PartitionSink(runner, calls, lambda error: pytest.fail(repr(error)), limits, together)
    yield opened, calls
    await opened.close()


def offer_records(to: PartitionSink, size: int, times: int = 1) -> None:
    for number in range(times):
        to.offer(StoredRecord(Record("t", None, bytes(size)), Position("t", 0, number), EPOCH))


async def wait_for_acknowledgement(calls: RecordingPartition, offset: int) -> None:
    await eventually(lambda: calls.acknowledged[-1:], lambda last: last == [offset])


async def test_full_partition_resumes_once_at_half_its_bytes() -> None:
    runner = GatedRunner()
    async with open_sink(runner) as (sink, calls):
        offer_records(sink, 100, 10)
        assert not sink.is_full
        offer_records(sink, 1)
        assert sink.is_full
        runner.gate.set()
        await wait_for_acknowledgement(calls, 1)
        assert (sink.buffered_bytes, sink.is_full, calls.resume_count) == (0, False, 1)


async def test_byte_budget_is_shared_with_minimum_per_partition() -> None:
    runner, together = GatedRunner(), ByteBudget()
    async with (
        open_sink(runner, together) as (sink, _),
        open_sink(runner, together) as (two, _),
        open_sink(runner, together) as (three, _),
    ):
        offer_records(sink, 900)
        offer_records(two, 500)
        assert not (sink.is_full or two.is_full)
        offer_records(three, 150)
        assert together.used_bytes == 1550
        assert sink.is_full and two.is_full, "the stage is over its limit"
        assert not three.is_full, "this partition has not used its share"


async def test_partition_paused_by_shared_budget_resumes_after_own_records() -> None:
    slow, quick, together = GatedRunner(), GatedRunner(), ByteBudget()
    async with (
        open_sink(slow, together) as (crowd, _),
        open_sink(slow, together) as (more, _),
        open_sink(quick, together) as (sink, calls),
    ):
        offer_records(crowd, 1000)
        offer_records(more, 1000)
        offer_records(sink, 300)
        assert sink.is_full
        quick.gate.set()
        await wait_for_acknowledgement(calls, 1)
        assert (calls.resume_count, sink.is_full) == (1, False)
        assert together.used_bytes == 2000


async def test_closed_partition_releases_its_bytes() -> None:
    together = ByteBudget()
    async with open_sink(GatedRunner(), together) as (sink, _):
        offer_records(sink, 700)
        assert together.used_bytes == 700
    assert together.used_bytes == 0


class WeakReferenceableHeaders(dict[str, bytes]):
    """Headers that support weak references."""


@dataclass
class StuckRunner(GatedRunner):
    """The reaction to the first record never ends; the others need none."""

    async def claim(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        pending_event: Any = PendingEvent(
            Event(UUID(int=1), Content(text="x"), "s", "e", None), ClaimStatus.PENDING
        )  # type: ignore[type-var]
        return [
            WorkItem(record, None if record.position.offset else pending_event)
            for record in records
        ]

    async def react(self, works: Sequence[WorkItem]) -> None:
        await asyncio.Event().wait()


async def test_finished_records_behind_slow_reaction_release_their_bytes() -> None:
    headers = [WeakReferenceableHeaders() for _ in range(5)]
    followed = [weakref.ref(each) for each in headers]
    runner = StuckRunner()
    async with open_sink(runner) as (sink, calls):
        for offset in range(5):
            sink.offer(
                StoredRecord(
                    Record("t", None, b"x", headers.pop(0)), Position("t", 0, offset), EPOCH
                )
            )
            await eventually(lambda: sink.buffered_bytes <= 1 and not sink.queue)
        gc.collect()
        # The loops still look at the last one.
        assert [each() is not None for each in followed][:-1] == [True, False, False, False]
        assert calls.acknowledged == []
    assert runner.released == [0], "closing takes back the attempt at what is not finished"


@dataclass
class SlowFirstFinishRunner(GatedRunner):
    """Every record is a dead letter; the first call of `finish` waits for the gate."""

    finished: list[list[int]] = field(default_factory=list)

    async def claim(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        dead_letter: Any = "unreadable"
        return [WorkItem(record, dead_letter=dead_letter) for record in records]

    async def finish(self, items: Sequence[WorkItem]) -> None:
        offsets = [item.stored_record.position.offset for item in items]
        if 0 in offsets:
            await self.gate.wait()
        self.finished.append(offsets)


async def test_concurrent_finishes_acknowledge_in_log_order() -> None:
    runner = SlowFirstFinishRunner()
    limits = replace(BOUNDS, finish_batch_records=2, concurrent_finishes=2)
    async with open_sink(runner, limits=limits) as (sink, calls):
        offer_records(sink, 1, 6)
        await eventually(lambda: runner.finished, lambda finished: finished == [[2, 3], [4, 5]])
        assert calls.acknowledged == []
        runner.gate.set()
        await wait_for_acknowledgement(calls, 6)
        assert runner.finished[-1] == [0, 1]


@dataclass
class DelegatingRunner(GatedRunner):
    """Leaves records with an even offset to a worker of another version."""

    async def claim(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        await self.gate.wait()
        return [
            WorkItem(record, is_delegated=record.position.offset % 2 == 0) for record in records
        ]


async def test_delegated_records_stay_unacknowledged_and_release_bytes() -> None:
    runner = DelegatingRunner()
    async with open_sink(runner) as (sink, calls):
        for offset in range(1, 12):
            sink.offer(StoredRecord(Record("t", None, bytes(100)), Position("t", 0, offset), EPOCH))
        assert sink.is_full
        runner.gate.set()
        await eventually(lambda: sink.buffered_bytes, lambda size: size == 0)
        assert (calls.acknowledged, calls.resume_count, sink.is_full) == ([2], 1, False)


@dataclass
class OutdatedRunner(GatedRunner):
    """A runner that is older than record number `newer`."""

    newer: int = 3
    claimed_offsets: list[list[int]] = field(default_factory=list)

    async def claim(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        self.claimed_offsets.append([record.position.offset for record in records])
        readable = [WorkItem(record) for record in records if record.position.offset < self.newer]
        if not readable:
            raise NewerVersion("v9")
        return readable


async def test_records_before_newer_version_are_acknowledged() -> None:
    runner = OutdatedRunner()
    async with open_sink(runner) as (sink, calls):
        offer_records(sink, 1, 6)
        await wait_for_acknowledgement(calls, 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (calls.acknowledged, sink.buffered_bytes, runner.claimed_offsets) == (
            [3],
            3,
            [[0, 1, 2, 3, 4, 5], [3, 4, 5]],
        )


@dataclass
class PruningRunner(GatedRunner):
    prune_offsets: list[int] = field(default_factory=list)

    async def prune(self, topic: str, partition: int, below: int) -> None:
        self.prune_offsets.append(below)


async def test_claims_below_committed_offset_are_pruned_one_round_late() -> None:
    runner = PruningRunner()
    runner.gate.set()
    async with open_sink(runner, limits=PartitionLimits(prune_interval_records=2)) as (sink, calls):
        for number, committed_offset in enumerate((0, 0, 0, 0, 3, 3, 5, 5, 9, 9)):
            calls.committed_offset = committed_offset
            sink.offer(StoredRecord(Record("t", None, b"x"), Position("t", 0, number), EPOCH))
            await wait_for_acknowledgement(calls, number + 1)
            await asyncio.sleep(0)
    assert runner.prune_offsets == [3, 5]


async def test_neighbors_of_stuck_event_finish_first(tmp_path: Path) -> None:
    world = SimulatedPipeline(tmp_path, [], 0, PartitionLimits())
    settled: set[str] = set()
    neighbours = asyncio.Event()

    async def react(pending_events: Sequence[PendingEvent], ports: Any) -> list[Emission]:
        names = {item.event.data.external_id for item in pending_events}
        if len(pending_events) > 1:
            raise TimeoutError
        if names == {"slow"}:
            await neighbours.wait()
        return []

    class Watched(Instrumentation):
        def count_finished(self, stage: str, dead_letter_code: str | None) -> None:
            settled.add(dead_letter_code or "fine")
            if (
                len(world.memory_ledger.inbox) == 3
                and sum(handled.has_reacted for handled in world.memory_ledger.inbox.values()) == 2
            ):
                neighbours.set()

    for name in ("a", "slow", "b"):
        await world.push(DocumentReceived(external_id=name, content=Content(text=name)), name)
    stage = Stage("probe", "raw", 1, "once_per_id", react=react, batch_size=8)
    runner = StageRunner(
        stage,
        world.ledger,
        world.log,
        world.ports,
        Publisher("probe", GENERATION, world.codec, lambda: EPOCH),
        world.codec,
        Watched(),
        backoff=Backoff(0, 0),
    )
    async with open_sink(runner, limits=PartitionLimits()) as (sink, calls):
        for record in world.log.topics["raw"]:
            sink.offer(record)
        await wait_for_acknowledgement(calls, 3)
    assert settled == {"fine"}


@dataclass
class CancelledWaitRunner(GatedRunner):
    """Awaits a task that another one cancels."""

    async def claim(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        waited = asyncio.get_running_loop().create_future()
        waited.cancel()
        await waited
        raise AssertionError("the wait was cancelled")


async def test_externally_cancelled_work_fails_partition() -> None:
    failures: list[BaseException] = []
    runner: Any = CancelledWaitRunner()
    opened = PartitionSink(runner, RecordingPartition(), failures.append, BOUNDS)
    offer_records(opened, 1)
    await eventually(lambda: failures)
    await opened.close()
    assert [type(failure) for failure in failures] == [LogUnavailable], (
        "reported once, without the tasks that closing cancelled"
    )
