"""Contract of the event log: append, read, subscribe."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from itertools import count, groupby

import pytest

from schemas.errors import ConfigurationError
from schemas.ports.log import Partition
from schemas.topics import Position, Record, StoredRecord
from tests.support.eventually import eventually
from tests.support.log_cases import (
    CollectingSink,
    LogCase,
    SubscriptionReader,
    log_and_subscriber,
    open_case,
    run_subscription,
)

__all__ = ["log_and_subscriber", "open_case"]

HOUR_MS = 3_600_000
TOPIC = "things"


def make_numbered_records(numbers: Iterable[int], *, key: bytes | None = None) -> list[Record]:
    """Make records whose value is their number, keyed by the number unless `key` is given."""
    return [Record(TOPIC, key or str(number).encode(), str(number).encode()) for number in numbers]


def read_numbers(records: Sequence[StoredRecord]) -> list[int]:
    return [int(record.record.value or b"") for record in records]


async def read_all(case: LogCase, **limits: dict[int, int]) -> list[StoredRecord]:
    return [record async for record in case.log.read(TOPIC, **limits)]


@pytest.fixture
async def case(log_and_subscriber: LogCase) -> LogCase:
    await log_and_subscriber.log.create_topics({TOPIC: 4}, retention_ms={})
    return log_and_subscriber


class TestAppending:
    async def test_offsets_of_one_key_increase_in_append_order(self, case: LogCase) -> None:
        positions = await case.log.append(make_numbered_records(range(50), key=b"one"))
        assert len({position.partition for position in positions}) == 1
        assert [position.offset for position in positions] == sorted(
            {position.offset for position in positions}
        )

    async def test_partitioner_matches_kafka_java_client(self, case: LogCase) -> None:
        positions = await case.log.append(
            [
                Record(TOPIC, key, b"")
                for key in (b"21", b"foobar", b"a-little-bit-long-string", b"abc")
            ]
        )
        java = [-973932308, -790332482, -985981536, 479470107]
        assert [position.partition for position in positions] == [
            (number & 0x7FFFFFFF) % case.partitions for number in java
        ]

    async def test_empty_append_stores_nothing(self, case: LogCase) -> None:
        assert await case.log.append([]) == []
        assert await read_all(case) == []

    async def test_concurrent_appends_are_all_stored(self, case: LogCase) -> None:
        answers = await asyncio.gather(
            *(
                case.log.append(make_numbered_records(range(start, start + 10)))
                for start in range(0, 200, 10)
            )
        )
        found = {
            record.position: int(record.record.value or b"") for record in await read_all(case)
        }
        assert [found[position] for positions in answers for position in positions] == list(
            range(200)
        )

    async def test_records_round_trip_unchanged(self, case: LogCase) -> None:
        headers = {
            "ce_id": b"42",
            "empty": b"",
            "binary": b"\x00\xff",
            "ce_subject": "São".encode(),
        }
        values = (None, b"", b"\x00\xff\xfe binary", b"x" * 900_000)
        records = [
            *(Record(TOPIC, b"\x00key\xff", value, headers) for value in values),
            Record(TOPIC, None, b"anywhere"),
        ]
        for record, position in zip(records, await case.log.append(records), strict=True):
            stored = await case.log.read_at(position)
            assert stored is not None
            assert (stored.record, stored.position) == (record, position)
            assert stored.appended_at.utcoffset() == timedelta(0)


class TestTopics:
    async def test_recreating_topic_keeps_its_records(self, case: LogCase) -> None:
        await case.log.append(make_numbered_records(range(3)))
        await case.log.create_topics({TOPIC: 4, "more": 1}, retention_ms={"more": HOUR_MS})
        assert sorted(read_numbers(await read_all(case))) == [0, 1, 2]
        assert await case.log.fetch_expired_offsets(TOPIC) == {}

    async def test_reported_retentions_enclose_configured_retention(self, case: LogCase) -> None:
        """In memory nothing expires."""
        await case.log.create_topics({"brief": 4}, retention_ms={"brief": HOUR_MS})
        hour, retention = timedelta(hours=1), await case.log.fetch_max_retention("brief")
        assert (retention is None) == (case.name == "memory")
        assert retention is None or hour < retention <= hour * 2
        assert await case.log.fetch_min_retention("brief") == (None if retention is None else hour)
        assert await case.log.fetch_max_retention(TOPIC) is None
        assert await case.log.fetch_min_retention(TOPIC) is None

    async def test_changed_partition_count_is_rejected(self, case: LogCase) -> None:
        with pytest.raises(ConfigurationError, match=f"{TOPIC}.*4"):
            await case.log.create_topics({TOPIC: 5}, retention_ms={})

    async def test_topics_are_isolated(self, case: LogCase) -> None:
        await case.log.create_topics({"other": 4}, retention_ms={})
        await case.log.append([Record("other", b"k", b"other"), *make_numbered_records([1])])
        assert [record.record.value async for record in case.log.read("other")] == [b"other"]
        assert read_numbers(await read_all(case)) == [1]

    async def test_deleted_topic_is_empty_after_recreation(self, case: LogCase) -> None:
        other = Record("others", b"1", b"stays")
        await case.log.create_topics({"others": 4}, retention_ms={})
        await case.log.append([*make_numbered_records(range(20)), other])
        async with run_subscription(
            case.subscriber, "readers", TOPIC, auto_acknowledge=True
        ) as reader:
            await eventually(lambda: len(reader.records) == 20)
        await case.log.delete_topics([TOPIC, "never there"])
        await case.log.create_topics({TOPIC: 4}, retention_ms={})
        assert (
            await read_all(case) == []
            and await case.log.fetch_committed_offsets("readers", TOPIC) == {}
        )
        await case.log.append(make_numbered_records([7]))
        async with run_subscription(case.subscriber, "readers", TOPIC) as reader:
            await eventually(lambda: read_numbers(reader.records) == [7])
        assert [record.record async for record in case.log.read("others")] == [other]

    async def test_topic_ends_enclose_appended_records(self, case: LogCase) -> None:
        ends = await case.log.fetch_offset_bounds(TOPIC)
        assert len(ends) == case.partitions
        assert all(first == after_last for first, after_last in ends.values())
        positions = await case.log.append(make_numbered_records(range(40)))
        by_partition = {
            number: sorted(p.offset for p in positions if p.partition == number)
            for number in range(case.partitions)
        }
        assert await case.log.fetch_offset_bounds(TOPIC) == {
            number: (offsets[0], offsets[-1] + 1) for number, offsets in by_partition.items()
        }


class TestReading:
    async def test_read_returns_each_record_once_in_order(self, case: LogCase) -> None:
        positions = await case.log.append(make_numbered_records(range(2_000)))
        records = await read_all(case)
        assert Counter(record.position for record in records) == Counter(positions)
        for number in range(case.partitions):
            mine = [record for record in records if record.position.partition == number]
            assert read_numbers(mine) == sorted(read_numbers(mine))
            assert [record.appended_at for record in mine] == sorted(
                record.appended_at for record in mine
            )

    async def test_read_respects_start_and_end(self, case: LogCase) -> None:
        positions = await case.log.append(make_numbered_records(range(30), key=b"one"))
        number, beyond = positions[0].partition, positions[-1].offset + 1_000
        for start, end, expected in (
            (positions[10].offset, positions[20].offset, range(10, 20)),
            (positions[25].offset, beyond, range(25, 30)),
            (beyond, beyond, range(0)),
        ):
            records = await read_all(case, start={number: start}, end={number: end})
            assert read_numbers(records) == list(expected)

    async def test_read_with_end_at_start_is_empty(self, case: LogCase) -> None:
        before = await case.log.fetch_offset_bounds(TOPIC)
        await case.log.append(make_numbered_records(range(5)))
        assert (
            await read_all(
                case, end={number: after_last for number, (_, after_last) in before.items()}
            )
            == []
        )

    async def test_read_resumes_after_last_returned_record(self, case: LogCase) -> None:
        await case.log.append(make_numbered_records(range(30)))
        every = await read_all(case)
        for taken in (0, 1, 13, 30):
            last = {record.position.partition: record.position.offset for record in every[:taken]}
            rest = await read_all(case, resume_after=last)
            assert {record.position for record in rest} == {
                record.position for record in every[taken:]
            }

    async def test_read_stops_at_end_known_at_start(self, case: LogCase) -> None:
        await case.log.append(make_numbered_records(range(10)))
        seen = []
        async for record in case.log.read(TOPIC):
            if not seen:
                await case.log.append(make_numbered_records(range(10, 20)))
            seen.append(record)
        assert sorted(read_numbers(seen)) == list(range(10))

    async def test_read_can_be_closed_early(self, case: LogCase) -> None:
        await case.log.append(make_numbered_records(range(100)))
        reading_on = case.log.read(TOPIC)
        async for _ in reading_on:
            break
        await reading_on.aclose()
        assert len(await read_all(case)) == 100

    async def test_read_at_finds_record_only_at_its_position(self, case: LogCase) -> None:
        positions = await case.log.append(make_numbered_records(range(20)))
        for number in (0, 7, 19):
            stored = await case.log.read_at(positions[number])
            assert stored is not None
            assert read_numbers([stored]) == [number]
        last = max(positions, key=lambda position: position.offset)
        assert await case.log.read_at(Position(TOPIC, last.partition, last.offset + 1)) is None


class TestSubscribing:
    async def test_existing_and_new_records_are_delivered_in_order(self, case: LogCase) -> None:
        await case.log.append(make_numbered_records(range(100)))
        async with run_subscription(case.subscriber, "g", TOPIC) as reader:
            await eventually(lambda: len(reader.records) == 100)
            await case.log.append(make_numbered_records(range(100, 200)))
            await eventually(lambda: len(reader.records) == 200)
        assert Counter(read_numbers(reader.records)) == Counter(range(200))
        for sink in reader.sinks:
            assert read_numbers(sink.received) == sorted(read_numbers(sink.received))
            assert {record.position.partition for record in sink.received} <= {
                sink.partition.number
            }
            assert sink.partition.topic == TOPIC

    async def test_subscription_delivers_same_records_as_read(self, case: LogCase) -> None:
        await case.log.append(
            [
                Record(TOPIC, b"k", None, {"h": b"\xff"}),
                Record(TOPIC, None, b"v"),
                Record(TOPIC, b"large", b"x" * 900_000),
            ]
        )
        async with run_subscription(case.subscriber, "g", TOPIC) as reader:
            await eventually(lambda: len(reader.records) == 3)
        in_place = sorted(reader.records, key=lambda record: record.position)
        assert in_place == sorted(await read_all(case), key=lambda record: record.position)

    async def test_groups_read_independently(self, case: LogCase) -> None:
        await case.log.append(make_numbered_records(range(20)))
        async with (
            run_subscription(case.subscriber, "one", TOPIC, auto_acknowledge=True) as one,
            run_subscription(case.other_subscriber, "two", TOPIC) as two,
        ):
            await eventually(lambda: len(one.records) == len(two.records) == 20)
        assert await case.log.fetch_committed_offsets("two", TOPIC) == {}

    async def test_subscription_resumes_after_acknowledged_prefix(self, case: LogCase) -> None:
        positions = await case.log.append(make_numbered_records(range(20), key=b"one"))
        partition, middle = positions[0].partition, positions[12].offset
        async with run_subscription(case.subscriber, "g", TOPIC) as first:
            await eventually(lambda: len(first.records) == 20)
            holder = next(sink for sink in first.open_sinks if sink.partition.number == partition)
            holder.partition.acknowledge(positions[4].offset + 1)
            holder.partition.acknowledge(middle + 1)
        assert await case.log.fetch_committed_offsets("g", TOPIC) == {partition: middle + 1}
        async with run_subscription(case.other_subscriber, "g", TOPIC) as second:
            await eventually(lambda: len(second.records) == 7)
        assert read_numbers(second.records) == list(range(13, 20))

    async def test_pending_records_are_counted_from_acknowledged_offset(
        self, case: LogCase
    ) -> None:
        await case.log.create_topics({"others": 4}, retention_ms={})
        positions = await case.log.append(make_numbered_records(range(20), key=b"one"))
        await case.log.append([Record("others", b"1", b"not counted")])
        partition, middle = positions[0].partition, positions[12].offset
        async with run_subscription(case.subscriber, "g", TOPIC) as reader:
            await eventually(lambda: len(reader.records) == 20)
            sink = next(sink for sink in reader.open_sinks if sink.partition.number == partition)
            sink.partition.acknowledge(middle + 1)
        below = {partition: positions[15].offset}
        assert await case.log.count_pending("g", TOPIC) == 7
        assert await case.log.count_pending("g", TOPIC, below) == 2
        assert await case.log.count_pending("nobody", TOPIC) == 20
        assert await case.log.count_records(TOPIC, below) == 15
        oldest = await case.log.read_at(positions[13])
        assert oldest is not None
        assert await case.log.fetch_oldest_pending_time("g", TOPIC) == oldest.appended_at

    async def test_offsets_are_committed_while_subscription_runs(self, case: LogCase) -> None:
        await case.log.append(make_numbered_records(range(20)))
        wanted = {
            number: after_last
            for number, (_, after_last) in (await case.log.fetch_offset_bounds(TOPIC)).items()
        }
        async with run_subscription(case.subscriber, "g", TOPIC, auto_acknowledge=True):
            await eventually(
                lambda: case.log.fetch_committed_offsets("g", TOPIC),
                lambda offsets: offsets == wanted,
            )

    async def test_closed_sink_cannot_acknowledge(self, case: LogCase) -> None:
        positions = await case.log.append(make_numbered_records(range(5), key=b"one"))
        async with run_subscription(case.subscriber, "g", TOPIC) as reader:
            await eventually(lambda: len(reader.records) == 5)
        assert all(sink.closed for sink in reader.sinks)
        for sink in reader.sinks:
            sink.partition.acknowledge(positions[-1].offset + 1)
            sink.partition.resume()
        async with run_subscription(case.subscriber, "g", TOPIC) as again:
            await eventually(lambda: len(again.records) == 5)
        assert await case.log.fetch_committed_offsets("g", TOPIC) == {}

    async def test_restarts_neither_lose_nor_duplicate_records(self, case: LogCase) -> None:
        numbers = count()
        seen: Counter[int] = Counter()
        for _ in range(4):
            await case.log.append(make_numbered_records(next(numbers) for _ in range(50)))
            async with run_subscription(
                case.subscriber, "g", TOPIC, auto_acknowledge=True
            ) as reader:
                await eventually(partial(getattr, reader, "records"), what="a first record")
            seen.update(read_numbers(reader.records))
        async with run_subscription(case.subscriber, "g", TOPIC, auto_acknowledge=True) as reader:
            await eventually(lambda: len(seen.keys() | set(read_numbers(reader.records))) == 200)
        seen.update(read_numbers(reader.records))
        assert seen == Counter(range(200)), (
            "acknowledged on delivery and stopped cleanly: each exactly once"
        )

    async def test_failing_sink_ends_subscription_with_its_error(self, case: LogCase) -> None:
        class Broken(CollectingSink):
            def offer(self, record: StoredRecord) -> None:
                raise ZeroDivisionError("in the sink")

        def open_sink(partition: Partition) -> Broken:
            return Broken(partition, auto_acknowledge=False, capacity=None)

        await case.log.append(make_numbered_records(range(5)))
        with pytest.raises((ZeroDivisionError, ExceptionGroup)) as caught:
            async with asyncio.timeout(60):
                await case.subscriber.subscribe("g", TOPIC, open_sink).run()
        assert (
            caught.group_contains(ZeroDivisionError)
            if isinstance(caught.value, ExceptionGroup)
            else True
        )
        assert await case.log.fetch_committed_offsets("g", TOPIC) == {}


class TestGroupSharing:
    async def test_partition_is_assigned_to_one_member_only(self, case: LogCase) -> None:
        async with run_subscription(case.subscriber, "g", TOPIC, auto_acknowledge=True) as one:
            await eventually(lambda: len(one.open_sinks) == case.partitions)
            async with run_subscription(
                case.other_subscriber, "g", TOPIC, auto_acknowledge=True
            ) as two:
                if case.splits_partitions:
                    await eventually(
                        lambda: len(one.open_sinks) == len(two.open_sinks) == case.partitions // 2
                    )
                await case.log.append(make_numbered_records(range(200)))
                await eventually(lambda: len(one.records) + len(two.records) >= 200)
                held = [
                    sink.partition.number for reader in (one, two) for sink in reader.open_sinks
                ]
                assert sorted(held) == list(range(case.partitions))
        assert Counter(read_numbers([*one.records, *two.records])) == Counter(range(200))

    async def test_new_member_receives_no_acknowledged_records(self, case: LogCase) -> None:
        async with run_subscription(case.subscriber, "g", TOPIC, auto_acknowledge=True) as one:
            await case.log.append(make_numbered_records(range(1_000)))
            await eventually(lambda: len(one.records) == 1_000)
            async with run_subscription(
                case.other_subscriber, "g", TOPIC, auto_acknowledge=True
            ) as two:
                if case.splits_partitions:
                    await eventually(lambda: len(two.open_sinks) == case.partitions // 2)
                await case.log.append(make_numbered_records(range(1_000, 1_100)))
                await eventually(lambda: count_distinct(one, two) == 1_100)
        assert Counter(read_numbers([*one.records, *two.records])) == Counter(range(1_100))

    async def test_remaining_member_takes_over_partitions(self, case: LogCase) -> None:
        async with run_subscription(
            case.other_subscriber, "g", TOPIC, auto_acknowledge=True
        ) as two:
            await eventually(lambda: len(two.open_sinks) == case.partitions)
            async with run_subscription(case.subscriber, "g", TOPIC, auto_acknowledge=True) as one:
                await case.log.append(make_numbered_records(range(100)))
                await eventually(lambda: count_distinct(one, two) >= 100)
            await case.log.append(make_numbered_records(range(100, 200)))
            await eventually(lambda: count_distinct(one, two) == 200)
            assert len(two.open_sinks) == case.partitions


def count_distinct(*readers: SubscriptionReader) -> int:
    return len({number for reader in readers for number in read_numbers(reader.records)})


class TestBackPressure:
    async def test_repeated_pauses_neither_lose_nor_duplicate_records(self, case: LogCase) -> None:
        total = 2_000
        await case.log.append(
            [
                Record(TOPIC, b"one", str(number).encode(), {"h": b"x" * 50})
                for number in range(total)
            ]
        )
        async with run_subscription(
            case.subscriber, "g", TOPIC, capacity=lambda number: 10
        ) as reader:
            try:
                async with asyncio.timeout(120):
                    while len(reader.records) < total:
                        await asyncio.sleep(0.001)
                        # Only full ones: on a slow machine no sink would ever fill up.
                        for sink in reader.open_sinks:
                            if sink.is_full:
                                sink.drain()
            except TimeoutError:
                pytest.fail(f"{len(reader.records)} of {total} came: {reader}")
        assert read_numbers(reader.records) == list(range(total))
        assert sum(sink.times_full for sink in reader.sinks) >= 50

    async def test_full_sink_pauses_only_its_partition(self, case: LogCase) -> None:
        positions = await case.log.append(make_numbered_records(range(4_000)))
        stuck = positions[0].partition
        expected = Counter(position.partition for position in positions)
        async with run_subscription(
            case.subscriber, "g", TOPIC, capacity=lambda number: 5 if number == stuck else None
        ) as reader:
            await eventually(
                lambda: (
                    all(
                        len(sink.received) == expected[sink.partition.number]
                        for sink in reader.open_sinks
                        if sink.partition.number != stuck
                    )
                    and bool(reader.open_sinks)
                )
            )
            [held] = [sink for sink in reader.open_sinks if sink.partition.number == stuck]
            await eventually(lambda: held.is_full)
            assert len(held.received) < expected[stuck]
            while len(held.received) < expected[stuck]:
                held.drain()
                await asyncio.sleep(0.005)
        assert Counter(read_numbers(reader.records)) == Counter(range(4_000))
        assert all(len(list(group)) == 1 for _, group in groupby(read_numbers(held.received)))

    async def test_resume_without_pause_has_no_effect(self, case: LogCase) -> None:
        async with run_subscription(case.subscriber, "g", TOPIC) as reader:
            await eventually(lambda: len(reader.open_sinks) == case.partitions)
            for sink in reader.open_sinks:
                sink.partition.resume()
            await case.log.append(make_numbered_records(range(50)))
            await eventually(lambda: len(reader.records) == 50)
        assert sorted(read_numbers(reader.records)) == list(range(50))
