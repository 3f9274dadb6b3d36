"""Partition assignment between Faust and the sinks: delivery, buffering, acknowledgement.

Offsets of a consumer group from a coordinator's answers, without a broker.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import NotCoordinatorForGroupError
from aiokafka.structs import OffsetAndMetadata

from schemas.errors import LogUnavailable
from schemas.ports.log import Partition
from schemas.topics import Position
from streams.kafka import group_offsets
from streams.kafka.assignment import MAX_STALLED_CHECKS, PartitionAssignment
from streams.kafka.client import KafkaClientSettings
from streams.kafka.group_offsets import GroupOffsets
from tests.support.log_cases import CollectingSink


class FakeCoordinator:
    """Returns the answers in turn, and the last one repeatedly."""

    def __init__(self, *answers: dict[TopicPartition, OffsetAndMetadata] | Exception) -> None:
        self.answers = list(answers)

    async def list_consumer_group_offsets(
        self, group: str, *, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "_RETRY_DELAY_S", 0.0)


def make_groups(*answers: Any) -> GroupOffsets:
    found = GroupOffsets(KafkaClientSettings("here:9"))
    found._client = FakeCoordinator(*answers)  # type: ignore[assignment]
    return found


COMMITTED_OFFSETS = {
    TopicPartition("t", 0): OffsetAndMetadata(5, ""),
    TopicPartition("t", 1): OffsetAndMetadata(-1, ""),
}


async def test_partitions_without_committed_offset_are_omitted() -> None:
    assert await make_groups(COMMITTED_OFFSETS).fetch_committed("g", "t", 2) == {0: 5}


@pytest.mark.parametrize(
    "refusal",
    [{}, NotCoordinatorForGroupError(), OSError("reset")],
    ids=["an empty answer", "another broker's", "a broken connection"],
)
async def test_unready_coordinator_is_retried(
    refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await make_groups(refusal, refusal, COMMITTED_OFFSETS).fetch_committed("g", "t", 2) == {
        0: 5
    }
    monkeypatch.setattr(group_offsets, "_RETRY_FOR_S", 0.01)
    with pytest.raises(LogUnavailable):
        await make_groups(refusal).fetch_committed("g", "t", 2)


class FakeTopicPartition(NamedTuple):
    topic: str
    partition: int


FIRST_PARTITION = FakeTopicPartition("p.things", 0)


@dataclass
class FakeConsumer:
    """The part of Faust's consumer that an assignment uses."""

    paused: set[FakeTopicPartition] = field(default_factory=set)
    seeks: list[tuple[int, asyncio.Future[int]]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def on_buffer_full(self, tp: FakeTopicPartition) -> None:
        self.paused.add(tp)

    def on_buffer_drop(self, tp: FakeTopicPartition) -> None:
        self.paused.discard(tp)

    def refetch_from(self, tp: FakeTopicPartition, offset: int) -> asyncio.Future[int]:
        self.seeks.append((offset, asyncio.get_running_loop().create_future()))
        return self.seeks[-1][1]

    def skip_gap(self, tp: FakeTopicPartition, start: int, end: int) -> None:
        self.gaps.append((start, end))


@dataclass
class FakeMessage:
    offset: int
    tp: FakeTopicPartition = FIRST_PARTITION
    generation_id: int | None = 1
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: Any = (("h", b"1"), ("null", None))
    timestamp: float = 1_700_000_000.123
    acknowledged: bool = False

    def ack(self, consumer: Any, n: int = 1) -> bool:
        self.acknowledged = True
        return True


@dataclass
class AssignmentHarness:
    assignment: PartitionAssignment
    consumer: FakeConsumer
    sinks: list[CollectingSink]

    def begin(self, generation: int, partitions: int = 1) -> None:
        self.assignment.begin(
            [FakeTopicPartition("p.things", number) for number in range(partitions)],
            generation,
            self.consumer,
        )

    def deliver(self, *messages: FakeMessage) -> None:
        """The first one stands where reading begins."""
        for message in messages:
            self.assignment.set_starts({message.tp: message.offset})
            self.assignment.deliver(message)

    @property
    def delivered_offsets(self) -> list[int]:
        return [stored.position.offset for stored in self.sinks[0].received]


@pytest.fixture
async def world() -> AssignmentHarness:
    sinks: list[CollectingSink] = []

    def open_sink(partition: Partition) -> CollectingSink:
        sinks.append(CollectingSink(partition, auto_acknowledge=False, capacity=3))
        return sinks[-1]

    return AssignmentHarness(PartitionAssignment("things", open_sink), FakeConsumer(), sinks)


async def test_message_becomes_record_of_unprefixed_topic(world: AssignmentHarness) -> None:
    world.begin(1)
    world.deliver(FakeMessage(7))
    [stored] = world.sinks[0].received
    assert stored.position == Position("things", 0, 7)
    assert stored.record.headers == {"h": b"1", "null": b""}
    assert stored.appended_at.isoformat() == "2023-11-14T22:13:20.123000+00:00"


async def test_only_contiguous_prefix_is_acknowledged(world: AssignmentHarness) -> None:
    world.begin(1)
    messages = [FakeMessage(offset) for offset in (3, 4, 9)]
    world.deliver(*messages)
    world.sinks[0].partition.acknowledge(5)
    assert [message.acknowledged for message in messages] == [True, True, False]


async def test_message_bytes_are_released_after_delivery(world: AssignmentHarness) -> None:
    world.begin(1)
    message = FakeMessage(3)
    world.deliver(message)
    assert (message.key, message.value, message.headers) == (None, None, None)


async def test_redelivered_message_is_not_delivered_twice(world: AssignmentHarness) -> None:
    world.begin(1)
    world.deliver(FakeMessage(3), FakeMessage(4), FakeMessage(3), FakeMessage(4), FakeMessage(5))
    assert [stored.position.offset for stored in world.sinks[0].received] == [3, 4, 5]


async def test_rebalance_after_close_opens_no_partition(world: AssignmentHarness) -> None:
    world.begin(1)
    await world.assignment.close()
    world.begin(2)
    world.assignment.set_starts({FIRST_PARTITION: 0})
    world.assignment.deliver(FakeMessage(0, generation_id=2))
    assert [sink.closed for sink in world.sinks] == [True]


async def test_full_sink_pauses_only_its_partition(world: AssignmentHarness) -> None:
    world.begin(1, partitions=2)
    world.deliver(
        FakeMessage(1),
        FakeMessage(2),
        FakeMessage(3),
        FakeMessage(1, tp=FakeTopicPartition("p.things", 1)),
    )
    assert world.consumer.paused == {FIRST_PARTITION}
    world.sinks[0].drain()
    assert world.consumer.paused == set()


async def test_fetched_messages_reach_full_sink(world: AssignmentHarness) -> None:
    world.begin(1)
    world.deliver(*(FakeMessage(offset) for offset in range(6)))
    assert len(world.sinks[0].received) == 6


async def test_messages_of_previous_generation_are_ignored(world: AssignmentHarness) -> None:
    world.begin(1)
    await world.assignment.end()
    world.begin(2)
    world.deliver(FakeMessage(400, generation_id=1), FakeMessage(400, generation_id=2))
    assert [stored.position.offset for stored in world.sinks[1].received] == [400]


async def test_revoked_partition_receives_nothing(world: AssignmentHarness) -> None:
    world.begin(1)
    message = FakeMessage(1)
    world.deliver(message)
    await world.assignment.end()
    world.deliver(FakeMessage(2))
    world.sinks[0].partition.acknowledge(2)
    world.consumer.paused.add(FIRST_PARTITION)
    world.sinks[0].partition.resume()
    assert world.sinks[0].closed
    assert not message.acknowledged
    assert world.consumer.paused == {FIRST_PARTITION}


async def test_first_sink_error_fails_assignment() -> None:
    class Broken(CollectingSink):
        def offer(self, record: object) -> None:
            raise ZeroDivisionError

    assignment = PartitionAssignment(
        "things", lambda partition: Broken(partition, auto_acknowledge=False, capacity=None)
    )
    assignment.begin([FIRST_PARTITION], 1, FakeConsumer())
    assignment.set_starts({FIRST_PARTITION: 1})
    assignment.deliver(FakeMessage(1))
    assignment.deliver(FakeMessage(2))
    with pytest.raises(ZeroDivisionError):
        await assignment.failure


async def test_sink_that_cannot_open_fails_assignment() -> None:
    def open_sink(partition: Partition) -> CollectingSink:
        raise ZeroDivisionError

    assignment = PartitionAssignment("things", open_sink)
    assignment.begin([FIRST_PARTITION], 1, FakeConsumer())
    with pytest.raises(ZeroDivisionError):
        await assignment.failure


@pytest.mark.parametrize("timestamp", [1e17, -1e17, float("nan")])
async def test_invalid_producer_timestamp_is_tolerated(
    world: AssignmentHarness, timestamp: float
) -> None:
    world.begin(1)
    world.deliver(FakeMessage(0, timestamp=timestamp), FakeMessage(1))
    assert not world.assignment.failure.done()
    assert [record.position.offset for record in world.sinks[0].received] == [0, 1]
    assert world.sinks[0].received[0].appended_at == datetime.fromtimestamp(0, UTC)


async def test_committed_offset_follows_broker_commits(world: AssignmentHarness) -> None:
    world.begin(1)
    world.deliver(FakeMessage(3), FakeMessage(4))
    partition = world.sinks[0].partition
    partition.acknowledge(5)
    assert partition.committed_offset == 0
    world.assignment.record_committed({FIRST_PARTITION: 4, FakeTopicPartition("p.things", 7): 9})
    assert partition.committed_offset == 4


async def test_messages_before_known_start_offset_are_dropped(world: AssignmentHarness) -> None:
    world.begin(1)
    world.assignment.deliver(FakeMessage(5))
    assert world.delivered_offsets == []
    world.assignment.set_starts({FIRST_PARTITION: 3, FakeTopicPartition("p.things", 9): 1})
    world.assignment.set_starts({FIRST_PARTITION: 4})
    world.deliver(FakeMessage(3), FakeMessage(4))
    assert world.delivered_offsets == [3, 4], "where it was set to first"


@pytest.mark.parametrize("lost", [0, 2])
async def test_dropped_message_is_fetched_again(world: AssignmentHarness, lost: int) -> None:
    world.begin(1)
    world.assignment.set_starts({FIRST_PARTITION: 0})
    world.deliver(*(FakeMessage(offset) for offset in range(3) if offset != lost), FakeMessage(3))
    assert world.delivered_offsets == list(range(lost))
    [(back, going)] = world.consumer.seeks
    assert back == lost
    going.set_result(5)
    await asyncio.sleep(0)
    world.deliver(FakeMessage(4), *(FakeMessage(offset) for offset in range(lost, 6)))
    assert len(world.consumer.seeks) == 1, "late records of the old fetch cause no second seek"
    assert world.delivered_offsets == [0, 1, 2, 3, 4, 5] and world.consumer.gaps == []


@pytest.mark.parametrize(
    ("fetches", "inflight_end", "delivered", "gap", "n_seeks"),
    [
        pytest.param(
            [(0, 3, 4), (3, 4, 5)], 5, [0, 3, 4, 5], (1, 3), 1, id="missing in both fetches"
        ),
        pytest.param(
            [(1, 2), (5, 6), (5, 6)], 3, [5, 6], (0, 5), 2, id="retention deletes all of the first"
        ),
        pytest.param(
            [(3, 4, 5, 6, 7, 8), (6, 7, 8), (6, 7, 8)],
            None,
            [6, 7, 8],
            (0, 6),
            2,
            id="more expires",
        ),
        pytest.param(
            [(7,), (4, 5), (4, 5)], None, [4, 5], (0, 4), 2, id="the refetch finds a lower"
        ),
    ],
)
async def test_offset_gap_is_accepted_after_second_fetch(
    world: AssignmentHarness,
    fetches: list[tuple[int, ...]],
    inflight_end: int | None,
    delivered: list[int],
    gap: tuple[int, int],
    n_seeks: int,
) -> None:
    world.begin(1)
    world.assignment.set_starts({FIRST_PARTITION: 0})
    for number, offsets in enumerate(fetches):
        if number == 1 and inflight_end is not None:
            world.consumer.seeks[0][1].set_result(inflight_end)
            await asyncio.sleep(0)
        world.deliver(*map(FakeMessage, offsets))
    assert world.delivered_offsets == delivered and world.consumer.gaps == [gap]
    assert [start for start, _ in world.consumer.seeks] == [gap[0]] * n_seeks


async def test_failed_seek_fails_assignment(world: AssignmentHarness) -> None:
    world.begin(1)
    world.assignment.set_starts({FIRST_PARTITION: 0})
    world.deliver(FakeMessage(1))
    world.consumer.seeks[0][1].set_exception(ZeroDivisionError())
    with pytest.raises(LogUnavailable, match="again failed"):
        await world.assignment.failure


async def test_assignment_is_ready_once_start_offsets_are_known(world: AssignmentHarness) -> None:
    world.begin(1)
    assert not world.assignment.is_ready
    world.assignment.set_starts({FIRST_PARTITION: 0})
    assert world.assignment.is_ready
    await world.assignment.end()
    assert not world.assignment.is_ready
    world.begin(2)
    assert not world.assignment.is_ready


async def test_unknown_start_offset_fails_assignment(world: AssignmentHarness) -> None:
    world.begin(1, partitions=3)
    world.assignment.set_starts({FIRST_PARTITION: 0})
    with pytest.raises(LogUnavailable, match="partitions 1, 2"):
        world.assignment.failure.result()


def check_fetched(
    world: AssignmentHarness, fetched: int, times: int = MAX_STALLED_CHECKS + 1
) -> None:
    for _ in range(times):
        world.assignment.check_progress({FIRST_PARTITION: fetched})


async def test_fetched_but_undelivered_records_are_fetched_again(world: AssignmentHarness) -> None:
    world.begin(1)
    world.deliver(FakeMessage(3))
    check_fetched(world, 6)
    assert [offset for offset, _ in world.consumer.seeks] == [4]
    world.deliver(FakeMessage(4), FakeMessage(5))
    check_fetched(world, 6)
    assert world.delivered_offsets == [3, 4, 5] and len(world.consumer.seeks) == 1


async def test_undelivered_offsets_after_refetch_are_transaction_markers(
    world: AssignmentHarness,
) -> None:
    world.begin(1)
    world.deliver(FakeMessage(3))
    check_fetched(world, 6)
    check_fetched(world, 4, times=1)
    check_fetched(world, 6)
    check_fetched(world, 6)
    world.deliver(FakeMessage(6))
    assert (world.delivered_offsets, len(world.consumer.seeks), world.consumer.gaps) == (
        [3, 6],
        1,
        [(4, 6)],
    )


async def test_no_refetch_while_delivery_progresses_or_is_paused(world: AssignmentHarness) -> None:
    world.begin(1)
    world.deliver(FakeMessage(1))
    for offset in range(2, 30):
        world.sinks[0].drain()
        check_fetched(world, 30, times=MAX_STALLED_CHECKS)
        world.deliver(FakeMessage(offset))
    world.deliver(FakeMessage(30), FakeMessage(31))
    assert world.sinks[0].is_full
    check_fetched(world, 40, times=5 * MAX_STALLED_CHECKS)
    assert world.consumer.seeks == []


async def test_stalled_reader_restarts(world: AssignmentHarness) -> None:
    world.begin(1)
    world.assignment.report_stall()
    with pytest.raises(LogUnavailable, match="things"):
        world.assignment.failure.result()
