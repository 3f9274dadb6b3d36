"""What every log promises: appending, reading, subscribing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import count, groupby

import pytest

from schemas.errors import ConfigurationError
from schemas.ports.log import Partition
from schemas.records import Position, Record, StoredRecord
from tests.contract.logs import Collector, LogCase, Reader, log_and_subscriber, open_case, reading, until

__all__ = ["log_and_subscriber", "open_case"]

HOUR_MS = 3_600_000
TOPIC = "things"


def numbered(numbers: Iterable[int], *, key: bytes | None = None) -> list[Record]:
    """Records whose value is their number; keyed by it too, unless all have one key."""
    return [Record(TOPIC, key or str(number).encode(), str(number).encode()) for number in numbers]


def numbers_of(records: Sequence[StoredRecord]) -> list[int]:
    return [int(record.record.value or b"") for record in records]


async def read_all(case: LogCase, **limits: dict[int, int]) -> list[StoredRecord]:
    return [record async for record in case.log.read(TOPIC, **limits)]


@pytest.fixture
async def case(log_and_subscriber: LogCase) -> LogCase:
    await log_and_subscriber.log.create_topics({TOPIC: 4}, retention_ms={})
    return log_and_subscriber


class TestAppending:
    async def test_positions_of_one_key_grow_in_the_order_given(self, case: LogCase) -> None:
        positions = await case.log.append(numbered(range(50), key=b"one"))
        assert len({position.partition for position in positions}) == 1
        assert [position.offset for position in positions] == sorted({position.offset for position in positions})

    async def test_a_key_stays_in_its_partition(self, case: LogCase) -> None:
        first = await case.log.append(numbered(range(20)))
        again = await case.log.append(numbered(range(20)))
        assert [position.partition for position in first] == [position.partition for position in again]
        assert len({position.partition for position in first}) == case.partitions

    async def test_partitions_are_those_of_kafkas_java_clients(self, case: LogCase) -> None:
        positions = await case.log.append([Record(TOPIC, key, b"") for key in (b"21", b"foobar", b"a-little-bit-long-string", b"abc")])
        java = [-973932308, -790332482, -985981536, 479470107]
        assert [position.partition for position in positions] == [(number & 0x7FFFFFFF) % case.partitions for number in java]

    async def test_records_without_a_key_are_kept(self, case: LogCase) -> None:
        await case.log.append([Record(TOPIC, None, b"anywhere")])
        assert [record.record for record in await read_all(case)] == [Record(TOPIC, None, b"anywhere")]

    async def test_nothing_is_appended_by_an_empty_call(self, case: LogCase) -> None:
        assert await case.log.append([]) == []
        assert await read_all(case) == []

    async def test_appends_of_many_at_once_are_all_kept(self, case: LogCase) -> None:
        answers = await asyncio.gather(*(case.log.append(numbered(range(start, start + 10))) for start in range(0, 200, 10)))
        found = {record.position: int(record.record.value or b"") for record in await read_all(case)}
        assert [found[position] for positions in answers for position in positions] == list(range(200))

    @pytest.mark.parametrize("value", [None, b"", b"\x00\xff\xfe binary", b"x" * 900_000], ids=["null", "empty", "binary", "900 KB"])
    async def test_a_record_comes_back_as_it_went_in(self, case: LogCase, value: bytes | None) -> None:
        record = Record(TOPIC, b"\x00key\xff", value, {"ce_id": b"42", "empty": b"", "binary": b"\x00\xff", "ce_subject": "São".encode()})
        [position] = await case.log.append([record])
        stored = await case.log.read_at(position)
        assert stored is not None
        assert (stored.record, stored.position) == (record, position)
        assert stored.appended_at.utcoffset() == timedelta(0)


class TestTopics:
    async def test_creating_topics_again_keeps_what_they_hold(self, case: LogCase) -> None:
        await case.log.append(numbered(range(3)))
        await case.log.create_topics({TOPIC: 4, "more": 1}, retention_ms={"more": HOUR_MS})
        assert sorted(numbers_of(await read_all(case))) == [0, 1, 2]

    async def test_a_log_tells_how_long_a_record_can_stay_and_never_less_than_it_was_told(self, case: LogCase) -> None:
        """In memory nothing expires."""
        await case.log.create_topics({"brief": 4}, retention_ms={"brief": HOUR_MS})
        hour, kept = timedelta(hours=1), await case.log.keeps("brief")
        assert (kept is None) == (case.name == "memory")
        assert kept is None or hour < kept <= hour * 2
        assert await case.log.keeps(TOPIC) is None

    async def test_a_log_tells_how_long_every_record_stays(self, case: LogCase) -> None:
        await case.log.create_topics({"brief": 4}, retention_ms={"brief": HOUR_MS})
        assert await case.log.keeps_at_least("brief") == (None if case.name == "memory" else timedelta(hours=1))
        assert await case.log.keeps_at_least(TOPIC) is None

    async def test_nothing_has_expired_of_a_topic_that_keeps_everything(self, case: LogCase) -> None:
        await case.log.append(numbered(range(3)))
        assert await case.log.expired(TOPIC) == {}

    async def test_another_partition_count_is_refused(self, case: LogCase) -> None:
        with pytest.raises(ConfigurationError, match=f"{TOPIC}.*4"):
            await case.log.create_topics({TOPIC: 5}, retention_ms={})

    async def test_topics_do_not_see_each_others_records(self, case: LogCase) -> None:
        await case.log.create_topics({"other": 4}, retention_ms={})
        await case.log.append([Record("other", b"k", b"other"), *numbered([1])])
        assert [record.record.value async for record in case.log.read("other")] == [b"other"]
        assert numbers_of(await read_all(case)) == [1]

    async def test_a_deleted_topic_takes_its_records_along_and_can_be_made_again(self, case: LogCase) -> None:
        other = Record("others", b"1", b"stays")
        await case.log.create_topics({"others": 4}, retention_ms={})
        await case.log.append([*numbered(range(20)), other])
        async with reading(case.subscriber, "readers", TOPIC, acknowledging=True) as reader:
            await until(lambda: len(reader.records) == 20)
        await case.log.delete_topics([TOPIC, "never there"])
        await case.log.create_topics({TOPIC: 4}, retention_ms={})
        assert await read_all(case) == [] and await case.log.acknowledged("readers", TOPIC) == {}
        await case.log.append(numbered([7]))
        async with reading(case.subscriber, "readers", TOPIC) as reader:
            await until(lambda: numbers_of(reader.records) == [7])
        assert [record.record async for record in case.log.read("others")] == [other]

    async def test_an_empty_topic_ends_where_it_begins(self, case: LogCase) -> None:
        ends = await case.log.ends(TOPIC)
        assert len(ends) == case.partitions
        assert all(first == after_last for first, after_last in ends.values())

    async def test_ends_enclose_exactly_what_was_appended(self, case: LogCase) -> None:
        positions = await case.log.append(numbered(range(40)))
        by_partition = {number: sorted(p.offset for p in positions if p.partition == number) for number in range(case.partitions)}
        assert await case.log.ends(TOPIC) == {number: (offsets[0], offsets[-1] + 1) for number, offsets in by_partition.items()}


class TestReading:
    async def test_all_is_read_once_and_in_order(self, case: LogCase) -> None:
        positions = await case.log.append(numbered(range(2_000)))
        records = await read_all(case)
        assert Counter(record.position for record in records) == Counter(positions)
        for number in range(case.partitions):
            mine = [record for record in records if record.position.partition == number]
            assert numbers_of(mine) == sorted(numbers_of(mine))
            assert [record.appended_at for record in mine] == sorted(record.appended_at for record in mine)

    async def test_reading_keeps_to_its_limits(self, case: LogCase) -> None:
        positions = await case.log.append(numbered(range(30), key=b"one"))
        number = positions[0].partition
        records = await read_all(case, start={number: positions[10].offset}, end={number: positions[20].offset})
        assert numbers_of(records) == list(range(10, 20))

    async def test_limits_outside_the_log_are_no_error(self, case: LogCase) -> None:
        positions = await case.log.append(numbered(range(5), key=b"one"))
        number, beyond = positions[0].partition, positions[-1].offset + 1_000
        assert numbers_of(await read_all(case, end={number: beyond})) == [0, 1, 2, 3, 4]
        assert await read_all(case, start={number: beyond}) == []

    async def test_an_end_at_the_beginning_lets_nothing_through(self, case: LogCase) -> None:
        before = await case.log.ends(TOPIC)
        await case.log.append(numbered(range(5)))
        assert await read_all(case, end={number: after_last for number, (_, after_last) in before.items()}) == []

    async def test_reading_goes_on_behind_the_last_record_that_was_given(self, case: LogCase) -> None:
        await case.log.append(numbered(range(30)))
        every = await read_all(case)
        for taken in (0, 1, 13, 30):
            last = {record.position.partition: record.position.offset for record in every[:taken]}
            rest = await read_all(case, behind=last)
            assert {record.position for record in rest} == {record.position for record in every[taken:]}

    async def test_reading_stops_at_the_ends_of_when_it_was_asked(self, case: LogCase) -> None:
        await case.log.append(numbered(range(10)))
        seen = []
        async for record in case.log.read(TOPIC):
            if not seen:
                await case.log.append(numbered(range(10, 20)))
            seen.append(record)
        assert sorted(numbers_of(seen)) == list(range(10))

    async def test_a_reader_may_leave_early(self, case: LogCase) -> None:
        await case.log.append(numbered(range(100)))
        reading_on = case.log.read(TOPIC)
        async for _ in reading_on:
            break
        await reading_on.aclose()
        assert len(await read_all(case)) == 100

    async def test_a_record_is_found_at_its_place_and_nowhere_else(self, case: LogCase) -> None:
        positions = await case.log.append(numbered(range(20)))
        for number in (0, 7, 19):
            stored = await case.log.read_at(positions[number])
            assert stored is not None
            assert numbers_of([stored]) == [number]
        last = max(positions, key=lambda position: position.offset)
        assert await case.log.read_at(Position(TOPIC, last.partition, last.offset + 1)) is None


class TestSubscribing:
    async def test_what_is_there_and_what_comes_is_delivered_in_order(self, case: LogCase) -> None:
        await case.log.append(numbered(range(100)))
        async with reading(case.subscriber, "g", TOPIC) as reader:
            await until(lambda: len(reader.records) == 100)
            await case.log.append(numbered(range(100, 200)))
            await until(lambda: len(reader.records) == 200)
        assert Counter(numbers_of(reader.records)) == Counter(range(200))
        for sink in reader.sinks:
            assert numbers_of(sink.received) == sorted(numbers_of(sink.received))
            assert {record.position.partition for record in sink.received} <= {sink.partition.number}
            assert sink.partition.topic == TOPIC

    async def test_delivered_records_are_those_that_are_read(self, case: LogCase) -> None:
        await case.log.append([Record(TOPIC, b"k", None, {"h": b"\xff"}), Record(TOPIC, None, b"v"), Record(TOPIC, b"large", b"x" * 900_000)])
        async with reading(case.subscriber, "g", TOPIC) as reader:
            await until(lambda: len(reader.records) == 3)
        in_place = sorted(reader.records, key=lambda record: record.position)
        assert in_place == sorted(await read_all(case), key=lambda record: record.position)

    async def test_groups_read_independently(self, case: LogCase) -> None:
        await case.log.append(numbered(range(20)))
        async with reading(case.subscriber, "one", TOPIC, acknowledging=True) as one, reading(case.rival, "two", TOPIC) as two:
            await until(lambda: len(one.records) == len(two.records) == 20)
        assert await case.log.acknowledged("two", TOPIC) == {}

    async def test_what_was_not_acknowledged_is_delivered_again(self, case: LogCase) -> None:
        await case.log.append(numbered(range(20)))
        async with reading(case.subscriber, "g", TOPIC) as first:
            await until(lambda: len(first.records) == 20)
        async with reading(case.rival, "g", TOPIC) as second:
            await until(lambda: len(second.records) == 20)
        assert sorted(numbers_of(second.records)) == list(range(20))

    async def test_reading_resumes_after_the_acknowledged_prefix(self, case: LogCase) -> None:
        positions = await case.log.append(numbered(range(20), key=b"one"))
        partition, middle = positions[0].partition, positions[12].offset
        async with reading(case.subscriber, "g", TOPIC) as first:
            await until(lambda: len(first.records) == 20)
            holder = next(sink for sink in first.open if sink.partition.number == partition)
            holder.partition.acknowledge(positions[4].offset + 1)
            holder.partition.acknowledge(middle + 1)
        assert await case.log.acknowledged("g", TOPIC) == {partition: middle + 1}
        async with reading(case.rival, "g", TOPIC) as second:
            await until(lambda: len(second.records) == 7)
        assert numbers_of(second.records) == list(range(13, 20))

    async def test_nothing_is_acknowledged_at_first(self, case: LogCase) -> None:
        await case.log.append(numbered(range(5)))
        assert await case.log.acknowledged("nobody", TOPIC) == {}

    async def test_acknowledgements_become_durable_while_reading_goes_on(self, case: LogCase) -> None:
        await case.log.append(numbered(range(20)))
        wanted = {number: after_last for number, (_, after_last) in (await case.log.ends(TOPIC)).items()}
        async with reading(case.subscriber, "g", TOPIC, acknowledging=True), asyncio.timeout(60):
            while await case.log.acknowledged("g", TOPIC) != wanted:
                await asyncio.sleep(0.05)

    async def test_a_closed_sink_acknowledges_nothing_any_more(self, case: LogCase) -> None:
        positions = await case.log.append(numbered(range(5), key=b"one"))
        async with reading(case.subscriber, "g", TOPIC) as reader:
            await until(lambda: len(reader.records) == 5)
        assert all(sink.closed for sink in reader.sinks)
        for sink in reader.sinks:
            sink.partition.acknowledge(positions[-1].offset + 1)
            sink.partition.resume()
        async with reading(case.subscriber, "g", TOPIC) as again:
            await until(lambda: len(again.records) == 5)
        assert await case.log.acknowledged("g", TOPIC) == {}

    async def test_stopping_and_starting_loses_nothing(self, case: LogCase) -> None:
        numbers = count()
        seen: Counter[int] = Counter()
        for _ in range(4):
            await case.log.append(numbered(next(numbers) for _ in range(50)))
            async with reading(case.subscriber, "g", TOPIC, acknowledging=True) as reader:
                await until(lambda reader=reader: len(reader.records) > 0)  # type: ignore[misc]
            seen.update(numbers_of(reader.records))
        async with reading(case.subscriber, "g", TOPIC, acknowledging=True) as reader:
            await until(lambda: len(seen.keys() | set(numbers_of(reader.records))) == 200)
        seen.update(numbers_of(reader.records))
        assert seen == Counter(range(200)), "acknowledged on delivery and stopped cleanly: each exactly once"

    async def test_a_failing_sink_ends_the_subscription_with_its_error(self, case: LogCase) -> None:
        class Broken(Collector):
            def offer(self, record: StoredRecord) -> None:
                raise ZeroDivisionError("in the sink")

        def open_sink(partition: Partition) -> Broken:
            return Broken(partition, acknowledging=False, room=None)

        await case.log.append(numbered(range(5)))
        with pytest.raises((ZeroDivisionError, ExceptionGroup)) as caught:
            async with asyncio.timeout(60):
                await case.subscriber.subscribe("g", TOPIC, open_sink).run()
        assert caught.group_contains(ZeroDivisionError) if isinstance(caught.value, ExceptionGroup) else True
        assert await case.log.acknowledged("g", TOPIC) == {}


class TestSharing:
    async def test_two_members_never_have_a_partition_at_the_same_time(self, case: LogCase) -> None:
        async with reading(case.subscriber, "g", TOPIC, acknowledging=True) as one:
            await until(lambda: len(one.open) == case.partitions)
            async with reading(case.rival, "g", TOPIC, acknowledging=True) as two:
                if case.shares:
                    await until(lambda: len(one.open) == len(two.open) == case.partitions // 2)
                await case.log.append(numbered(range(200)))
                await until(lambda: len(one.records) + len(two.records) >= 200)
                held = [sink.partition.number for reader in (one, two) for sink in reader.open]
                assert sorted(held) == list(range(case.partitions))
        assert Counter(numbers_of([*one.records, *two.records])) == Counter(range(200))

    async def test_a_newcomer_gets_nothing_that_was_acknowledged(self, case: LogCase) -> None:
        async with reading(case.subscriber, "g", TOPIC, acknowledging=True) as one:
            await case.log.append(numbered(range(1_000)))
            await until(lambda: len(one.records) == 1_000)
            async with reading(case.rival, "g", TOPIC, acknowledging=True) as two:
                if case.shares:
                    await until(lambda: len(two.open) == case.partitions // 2)
                await case.log.append(numbered(range(1_000, 1_100)))
                await until(lambda: seen(one, two) == 1_100)
        assert Counter(numbers_of([*one.records, *two.records])) == Counter(range(1_100))

    async def test_the_other_member_takes_over(self, case: LogCase) -> None:
        async with reading(case.rival, "g", TOPIC, acknowledging=True) as two:
            await until(lambda: len(two.open) == case.partitions)
            async with reading(case.subscriber, "g", TOPIC, acknowledging=True) as one:
                await case.log.append(numbered(range(100)))
                await until(lambda: seen(one, two) >= 100)
            await case.log.append(numbered(range(100, 200)))
            await until(lambda: seen(one, two) == 200)
            assert len(two.open) == case.partitions

    async def test_a_newcomer_takes_over_from_one_who_stopped(self, case: LogCase) -> None:
        async with reading(case.subscriber, "g", TOPIC, acknowledging=True) as one:
            await case.log.append(numbered(range(100)))
            await until(lambda: len(one.records) == 100)
        await case.log.append(numbered(range(100, 200)))
        async with reading(case.rival, "g", TOPIC, acknowledging=True) as two:
            await until(lambda: len(two.records) == 100)
        assert sorted(numbers_of(two.records)) == list(range(100, 200))


def seen(*readers: Reader) -> int:
    return len({number for reader in readers for number in numbers_of(reader.records)})


class TestBackPressure:
    async def test_fifty_pauses_lose_and_double_nothing(self, case: LogCase) -> None:
        total = 8_000
        await case.log.append([Record(TOPIC, b"one", str(number).encode(), {"h": b"x" * 50}) for number in range(total)])
        async with reading(case.subscriber, "g", TOPIC, room=lambda number: 10) as reader:
            try:
                async with asyncio.timeout(120):
                    while len(reader.records) < total:
                        await asyncio.sleep(0.001)
                        for sink in reader.open:
                            sink.take_all()
            except TimeoutError:
                pytest.fail(f"{len(reader.records)} of {total} came: {reader}")
        assert numbers_of(reader.records) == list(range(total))
        assert sum(sink.times_full for sink in reader.sinks) >= 50

    async def test_a_full_sink_stops_its_own_partition_only(self, case: LogCase) -> None:
        positions = await case.log.append(numbered(range(4_000)))
        stuck = positions[0].partition
        expected = Counter(position.partition for position in positions)
        async with reading(case.subscriber, "g", TOPIC, room=lambda number: 5 if number == stuck else None) as reader:
            await until(
                lambda: (
                    all(len(sink.received) == expected[sink.partition.number] for sink in reader.open if sink.partition.number != stuck) and bool(reader.open)
                )
            )
            [held] = [sink for sink in reader.open if sink.partition.number == stuck]
            await until(lambda: held.full)
            assert len(held.received) < expected[stuck]
            while len(held.received) < expected[stuck]:
                held.take_all()
                await asyncio.sleep(0.005)
        assert Counter(numbers_of(reader.records)) == Counter(range(4_000))
        assert all(len(list(group)) == 1 for _, group in groupby(numbers_of(held.received)))

    async def test_resuming_what_is_not_full_changes_nothing(self, case: LogCase) -> None:
        async with reading(case.subscriber, "g", TOPIC) as reader:
            await until(lambda: len(reader.open) == case.partitions)
            for sink in reader.open:
                sink.partition.resume()
            await case.log.append(numbered(range(50)))
            await until(lambda: len(reader.records) == 50)
        assert sorted(numbers_of(reader.records)) == list(range(50))
