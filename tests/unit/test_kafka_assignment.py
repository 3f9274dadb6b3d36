"""Between Faust and the sinks: what is handed over, held back, acknowledged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from schemas.errors import LogUnavailable
from schemas.ports.log import Partition
from schemas.records import Position
from streams.kafka.assignment import LOOKS, Assignment
from tests.contract.logs import Collector


class Place(NamedTuple):
    topic: str
    partition: int


FIRST = Place("p.things", 0)


@dataclass
class Consumer:
    """Faust's consumer, as far as an assignment uses it."""

    paused: set[Place] = field(default_factory=set)
    back: list[tuple[int, asyncio.Future[int]]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def on_buffer_full(self, tp: Place) -> None:
        self.paused.add(tp)

    def on_buffer_drop(self, tp: Place) -> None:
        self.paused.discard(tp)

    def read_again(self, tp: Place, offset: int) -> asyncio.Future[int]:
        self.back.append((offset, asyncio.get_running_loop().create_future()))
        return self.back[-1][1]

    def passed_over(self, tp: Place, first: int, until: int) -> None:
        self.gaps.append((first, until))


@dataclass
class Message:
    offset: int
    tp: Place = FIRST
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
class World:
    assignment: Assignment
    consumer: Consumer
    sinks: list[Collector]

    def begin(self, generation: int, partitions: int = 1) -> None:
        self.assignment.begin([Place("p.things", number) for number in range(partitions)], generation, self.consumer)

    def take(self, *messages: Message) -> None:
        """The first one stands where reading begins."""
        for message in messages:
            self.assignment.starts({message.tp: message.offset})
            self.assignment.take(message)

    @property
    def taken(self) -> list[int]:
        return [stored.position.offset for stored in self.sinks[0].received]


@pytest.fixture
async def world() -> World:
    sinks: list[Collector] = []

    def open_sink(partition: Partition) -> Collector:
        sinks.append(Collector(partition, acknowledging=False, room=3))
        return sinks[-1]

    return World(Assignment("things", open_sink), Consumer(), sinks)


async def test_a_message_becomes_a_record_of_the_topic_without_prefix(world: World) -> None:
    world.begin(1)
    world.take(Message(7))
    [stored] = world.sinks[0].received
    assert stored.position == Position("things", 0, 7)
    assert stored.record.headers == {"h": b"1", "null": b""}
    assert stored.appended_at.isoformat() == "2023-11-14T22:13:20.123000+00:00"


async def test_only_the_finished_prefix_is_acknowledged(world: World) -> None:
    world.begin(1)
    messages = [Message(offset) for offset in (3, 4, 9)]
    world.take(*messages)
    world.sinks[0].partition.acknowledge(5)
    assert [message.acknowledged for message in messages] == [True, True, False]


async def test_bytes_are_not_kept_until_they_are_acknowledged(world: World) -> None:
    world.begin(1)
    message = Message(3)
    world.take(message)
    assert (message.key, message.value, message.headers) == (None, None, None)


async def test_what_comes_again_is_not_delivered_again(world: World) -> None:
    world.begin(1)
    world.take(Message(3), Message(4), Message(3), Message(4), Message(5))
    assert [stored.position.offset for stored in world.sinks[0].received] == [3, 4, 5]


async def test_a_rebalance_that_ends_after_reading_was_stopped_opens_nothing(world: World) -> None:
    world.begin(1)
    await world.assignment.close()
    world.begin(2)
    world.assignment.starts({FIRST: 0})
    world.assignment.take(Message(0, generation_id=2))
    assert [sink.closed for sink in world.sinks] == [True]


async def test_a_full_sink_pauses_its_partition_only(world: World) -> None:
    world.begin(1, partitions=2)
    world.take(Message(1), Message(2), Message(3), Message(1, tp=Place("p.things", 1)))
    assert world.consumer.paused == {FIRST}
    world.sinks[0].take_all()
    assert world.consumer.paused == set()


async def test_what_was_already_fetched_for_a_full_sink_is_still_delivered(world: World) -> None:
    world.begin(1)
    world.take(*(Message(offset) for offset in range(6)))
    assert len(world.sinks[0].received) == 6


async def test_messages_of_another_generation_are_left_alone(world: World) -> None:
    world.begin(1)
    await world.assignment.end()
    world.begin(2)
    world.take(Message(400, generation_id=1), Message(400, generation_id=2))
    assert [stored.position.offset for stored in world.sinks[1].received] == [400]


async def test_nothing_reaches_a_partition_after_its_revocation(world: World) -> None:
    world.begin(1)
    message = Message(1)
    world.take(message)
    await world.assignment.end()
    world.take(Message(2))
    world.sinks[0].partition.acknowledge(2)
    world.consumer.paused.add(FIRST)
    world.sinks[0].partition.resume()
    assert world.sinks[0].closed
    assert not message.acknowledged
    assert world.consumer.paused == {FIRST}


async def test_the_first_error_of_a_sink_ends_the_assignment_and_nothing_escapes() -> None:
    class Broken(Collector):
        def offer(self, record: object) -> None:
            raise ZeroDivisionError

    assignment = Assignment("things", lambda partition: Broken(partition, acknowledging=False, room=None))
    assignment.begin([FIRST], 1, Consumer())
    assignment.starts({FIRST: 1})
    assignment.take(Message(1))
    assignment.take(Message(2))
    with pytest.raises(ZeroDivisionError):
        await assignment.failed


async def test_a_sink_that_cannot_be_opened_ends_the_assignment() -> None:
    def open_sink(partition: Partition) -> Collector:
        raise ZeroDivisionError

    assignment = Assignment("things", open_sink)
    assignment.begin([FIRST], 1, Consumer())
    with pytest.raises(ZeroDivisionError):
        await assignment.failed


@pytest.mark.parametrize("timestamp", [1e17, -1e17, float("nan")])
async def test_a_producers_impossible_time_stops_nothing(world: World, timestamp: float) -> None:
    world.begin(1)
    world.take(Message(0, timestamp=timestamp), Message(1))
    assert not world.assignment.failed.done()
    assert [record.position.offset for record in world.sinks[0].received] == [0, 1]
    assert world.sinks[0].received[0].appended_at == datetime.fromtimestamp(0, UTC)


async def test_a_partition_keeps_what_the_broker_has_taken_and_no_more(world: World) -> None:
    world.begin(1)
    world.take(Message(3), Message(4))
    partition = world.sinks[0].partition
    partition.acknowledge(5)
    assert partition.kept == 0
    world.assignment.committed({FIRST: 4, Place("p.things", 7): 9})
    assert partition.kept == 4


async def test_nothing_is_taken_before_it_is_known_where_to_start(world: World) -> None:
    world.begin(1)
    world.assignment.take(Message(5))
    assert world.taken == []
    world.assignment.starts({FIRST: 3, Place("p.things", 9): 1})
    world.assignment.starts({FIRST: 4})
    world.take(Message(3), Message(4))
    assert world.taken == [3, 4], "where it was set to first"


@pytest.mark.parametrize("lost", [0, 2])
async def test_what_was_dropped_on_the_way_is_read_again(world: World, lost: int) -> None:
    world.begin(1)
    world.assignment.starts({FIRST: 0})
    world.take(*(Message(offset) for offset in range(3) if offset != lost), Message(3))
    assert world.taken == list(range(lost))
    [(back, going)] = world.consumer.back
    assert back == lost
    going.set_result(5)
    await asyncio.sleep(0)
    world.take(Message(4), *(Message(offset) for offset in range(lost, 6)))
    assert len(world.consumer.back) == 1, "the rest of what was under way is no reason to go back once more"
    assert world.taken == [0, 1, 2, 3, 4, 5] and world.consumer.gaps == []


async def test_where_there_is_no_record_the_next_one_is_taken_when_it_comes_again(world: World) -> None:
    world.begin(1)
    world.assignment.starts({FIRST: 0})
    world.take(Message(0), Message(3), Message(4))
    world.consumer.back[0][1].set_result(5)
    await asyncio.sleep(0)
    world.take(Message(3), Message(4), Message(5))
    assert world.taken == [0, 3, 4, 5] and world.consumer.gaps == [(1, 3)]


async def test_retention_may_take_all_that_had_come(world: World) -> None:
    world.begin(1)
    world.assignment.starts({FIRST: 0})
    world.take(Message(1), Message(2))
    world.consumer.back[0][1].set_result(3)
    await asyncio.sleep(0)
    world.take(Message(5), Message(6))
    world.take(Message(5), Message(6))
    assert world.taken == [5, 6] and world.consumer.gaps == [(0, 5)]


async def test_what_retention_took_meanwhile_is_not_waited_for(world: World) -> None:
    world.begin(1)
    world.assignment.starts({FIRST: 0})
    for first in (3, 6, 6):
        world.take(*(Message(offset) for offset in range(first, 9)))
    assert world.taken == [6, 7, 8] and world.consumer.gaps == [(0, 6)]


async def test_a_record_nearer_to_the_one_that_is_missing_counts(world: World) -> None:
    world.begin(1)
    world.assignment.starts({FIRST: 0})
    world.take(Message(7))
    world.take(Message(4), Message(5))
    world.take(Message(4), Message(5))
    assert world.taken == [4, 5] and [back for back, _ in world.consumer.back] == [0, 0]


async def test_a_broker_that_cannot_go_back_ends_the_assignment(world: World) -> None:
    world.begin(1)
    world.assignment.starts({FIRST: 0})
    world.take(Message(1))
    world.consumer.back[0][1].set_exception(ZeroDivisionError())
    with pytest.raises(LogUnavailable, match="could not be read again"):
        await world.assignment.failed


async def test_reading_goes_on_when_the_partitions_of_now_are_set_to_their_places(world: World) -> None:
    world.begin(1)
    assert not world.assignment.is_ready
    world.assignment.starts({FIRST: 0})
    assert world.assignment.is_ready
    await world.assignment.end()
    assert not world.assignment.is_ready
    world.begin(2)
    assert not world.assignment.is_ready


async def test_a_partition_of_which_the_beginning_is_not_told_fails_the_assignment_so_that_it_begins_again(world: World) -> None:
    world.begin(1, partitions=3)
    world.assignment.starts({FIRST: 0})
    with pytest.raises(LogUnavailable, match="partitions 1, 2"):
        world.assignment.failed.result()


def look(world: World, fetched: int, times: int = LOOKS + 1) -> None:
    for _ in range(times):
        world.assignment.look({FIRST: fetched})


async def test_what_was_fetched_last_and_never_came_is_read_again(world: World) -> None:
    world.begin(1)
    world.take(Message(3))
    look(world, 6)
    assert [offset for offset, _ in world.consumer.back] == [4]
    world.take(Message(4), Message(5))
    look(world, 6)
    assert world.taken == [3, 4, 5] and len(world.consumer.back) == 1


async def test_where_nothing_comes_of_it_again_there_are_marks_of_transactions_only(world: World) -> None:
    world.begin(1)
    world.take(Message(3))
    look(world, 6)
    look(world, 4, times=1)
    look(world, 6)
    look(world, 6)
    world.take(Message(6))
    assert (world.taken, len(world.consumer.back), world.consumer.gaps) == ([3, 6], 1, [(4, 6)])


async def test_nothing_is_read_again_while_it_comes_or_is_held_back(world: World) -> None:
    world.begin(1)
    world.take(Message(1))
    for offset in range(2, 30):
        world.sinks[0].take_all()
        look(world, 30, times=LOOKS)
        world.take(Message(offset))
    world.take(Message(30), Message(31))
    assert world.sinks[0].full
    look(world, 40, times=5 * LOOKS)
    assert world.consumer.back == []


async def test_a_reader_that_nobody_resumes_begins_again(world: World) -> None:
    world.begin(1)
    world.assignment.stands_still()
    with pytest.raises(LogUnavailable, match="things"):
        world.assignment.failed.result()
