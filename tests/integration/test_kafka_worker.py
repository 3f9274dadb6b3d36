"""Workers on real Kafka: killed, scaled, slowed down, cut off. Nothing may be lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaError
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from faust.tables.recovery import Recovery

from schemas.errors import ConfigurationError, LimitExceeded, LogUnavailable
from schemas.ports.log import Partition
from schemas.records import Record, StoredRecord
from streams.kafka.app import FetchingThread
from streams.kafka.broker import Broker
from streams.kafka.client import seek_to_unread
from streams.kafka.jars import default_jars_dir, java_program
from streams.kafka.log import KafkaLog, KafkaSettings
from streams.kafka.worker import FaustSubscriber
from tests.contract.logs import PATIENCE_S, Collector, reading, until
from tests.forked import Forked, forked
from tests.integration.kafka_worker import Orders, run

pytestmark = pytest.mark.kafka

TOPIC = "things"


@pytest.fixture
async def log(kafka_settings: KafkaSettings) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(kafka_settings)
    await log.create_topics({TOPIC: 6}, retention_ms={})
    yield log
    await log.close()


class Workers:
    """Processes that read, and what they noted between them."""

    def __init__(self, settings: KafkaSettings, folder: Path, stack: ExitStack) -> None:
        self._settings = settings
        self._folder = folder
        self._stack = stack
        self._started = 0

    def start(self, *topics: str) -> Forked:
        self._started += 1
        orders = Orders(self._settings, str(self._folder / f"notes-{self._started}"), topics)
        worker = forked(run, orders, log=self._folder / f"log-{self._started}", environment={})
        self._stack.callback(end, worker, signal.SIGKILL)
        return worker

    def noted(self) -> Counter[int]:
        return Counter(int(line) for notes in self._folder.glob("notes-*") for line in notes.read_text().splitlines())

    def noted_by(self, number: int) -> int:
        notes = self._folder / f"notes-{number}"
        return len(notes.read_text().splitlines()) if notes.exists() else 0


def end(worker: Forked, how: signal.Signals) -> None:
    if worker.poll() is None:
        worker.send_signal(how)
        worker.wait()


@pytest.fixture
def workers(kafka_settings: KafkaSettings, tmp_path: Path) -> Iterator[Workers]:
    with ExitStack() as stack:
        yield Workers(kafka_settings, tmp_path, stack)


async def append(log: KafkaLog, numbers: range, topic: str = TOPIC) -> None:
    await log.append([Record(topic, str(number).encode(), str(number).encode()) for number in numbers])


async def append_slowly(log: KafkaLog, count: int) -> None:
    for start in range(0, count, 20):
        await append(log, range(start, start + 20))
        await asyncio.sleep(0.1)


class TestFaults:
    async def test_killing_one_of_two_workers_loses_nothing(self, log: KafkaLog, workers: Workers) -> None:
        first, _ = workers.start(TOPIC), workers.start(TOPIC)
        trickle = asyncio.create_task(append_slowly(log, 2_000))
        await until(lambda: workers.noted_by(1) > 50 and workers.noted_by(2) > 50)
        end(first, signal.SIGKILL)
        workers.start(TOPIC)
        await until(lambda: workers.noted_by(3) > 50)
        await trickle
        await until(lambda: workers.noted().keys() == set(range(2_000)))

    async def test_adding_and_removing_workers_loses_nothing(self, log: KafkaLog, workers: Workers) -> None:
        trickle = asyncio.create_task(append_slowly(log, 3_000))
        workers.start(TOPIC)
        await until(lambda: workers.noted_by(1) > 50)
        workers.start(TOPIC)
        await until(lambda: workers.noted_by(2) > 50)
        third = workers.start(TOPIC)
        await until(lambda: workers.noted_by(3) > 50)
        end(third, signal.SIGINT)
        await trickle
        await until(lambda: workers.noted().keys() == set(range(3_000)))

    async def test_one_process_reads_several_topics(self, log: KafkaLog, workers: Workers) -> None:
        await log.create_topics({"others": 2, "more": 1}, retention_ms={})
        workers.start(TOPIC, "others", "more")
        await append(log, range(100))
        await append(log, range(100, 200), "others")
        await append(log, range(200, 300), "more")
        await until(lambda: workers.noted().keys() == set(range(300)))


class TestSlowness:
    async def test_a_worker_that_takes_nothing_for_longer_than_the_poll_interval_keeps_its_partitions(
        self, log: KafkaLog, kafka_settings: KafkaSettings
    ) -> None:
        subscriber = FaustSubscriber(kafka_settings, session_timeout_s=6, max_poll_interval_s=2)
        await append(log, range(2_000))
        async with reading(subscriber, "g", TOPIC, room=lambda number: 1) as reader:
            await until(lambda: len(reader.open) == 6 and all(sink.full for sink in reader.open))
            await asyncio.sleep(5)
            assert len(reader.open) == len(reader.sinks) == 6
            while len(reader.records) < 2_000:
                for sink in reader.open:
                    sink.take_all()
                await asyncio.sleep(0.001)
        assert len(reader.sinks) == 6
        assert Counter(reader.values) == Counter(str(number).encode() for number in range(2_000))

    async def test_an_event_loop_that_is_busy_for_longer_than_the_session_keeps_its_partitions(self, log: KafkaLog, kafka_settings: KafkaSettings) -> None:
        async with reading(FaustSubscriber(kafka_settings, session_timeout_s=6), "g", TOPIC, acknowledging=True) as reader:
            await append(log, range(10))
            await until(lambda: len(reader.records) == 10)
            time.sleep(8)
            await append(log, range(10, 100))
            await until(lambda: len(reader.records) == 100)
        assert len(reader.sinks) == 6

    async def test_memory_stays_bounded_while_a_sink_is_full(self, log: KafkaLog, kafka_settings: KafkaSettings) -> None:
        await log.append([Record(TOPIC, b"one", bytes(100_000)) for _ in range(1_000)])
        async with reading(FaustSubscriber(kafka_settings), "g", TOPIC, room=lambda number: 5) as reader:
            await until(lambda: any(sink.full for sink in reader.open))
            await asyncio.sleep(2)
            assert len(reader.records) <= 5 + 100, "at most what one fetch handed over"
            assert len(reader.open) == 6


class SlowToClose(Collector):
    async def close(self) -> None:
        await asyncio.sleep(3)
        await super().close()


@pytest.fixture
def slow_seek(monkeypatch: pytest.MonkeyPatch) -> None:
    async def seek(consumer: AIOKafkaConsumer, reached: dict[int, int]) -> Any:
        await asyncio.sleep(3)
        return await seek_to_unread(consumer, reached)

    monkeypatch.setattr("streams.kafka.app.seek_to_unread", seek)


class TestRebalance:
    async def test_a_worker_that_finds_its_place_slowly_keeps_it(self, log: KafkaLog, kafka_settings: KafkaSettings, slow_seek: None) -> None:
        await append(log, range(100))
        async with reading(FaustSubscriber(kafka_settings, session_timeout_s=6, max_poll_interval_s=2), "g", TOPIC) as reader:
            await until(lambda: len(reader.records) == 100)
        assert len(reader.sinks) == 6

    async def test_a_worker_that_takes_its_time_to_hand_over_joins_again(self, log: KafkaLog, kafka_settings: KafkaSettings) -> None:
        def open_sink(partition: Partition) -> SlowToClose:
            sinks.append(SlowToClose(partition, acknowledging=True, room=None))
            return sinks[-1]

        sinks: list[Collector] = []
        subscriber = FaustSubscriber(kafka_settings, session_timeout_s=6, max_poll_interval_s=2)
        slow = asyncio.create_task(subscriber.subscribe("g", TOPIC, open_sink).run())
        await until(lambda: len(sinks) == 6)
        async with reading(subscriber, "g", TOPIC, acknowledging=True) as reader:
            await until(lambda: len(reader.open) == 3)
            await append(log, range(100))
            await until(lambda: len(reader.records) + sum(len(sink.received) for sink in sinks) == 100)
            assert sum(not sink.closed for sink in sinks) == 3
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)

    @pytest.mark.parametrize("refused", [1, 2], ids=["at first", "when another joins"])
    async def test_a_join_that_the_broker_refuses_is_tried_again(
        self, log: KafkaLog, kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch, refused: int
    ) -> None:
        joins: Counter[str] = Counter()
        rejoin = GroupCoordinator._do_rejoin_group

        async def refusing(coordinator: GroupCoordinator, subscription: Any) -> bool:
            joins[coordinator.group_id] += 1
            if joins[coordinator.group_id] == refused:
                raise KafkaError("[Error -1] UNKNOWN_SERVER_ERROR")
            return bool(await rejoin(coordinator, subscription))

        monkeypatch.setattr(GroupCoordinator, "_do_rejoin_group", refusing)
        subscriber = FaustSubscriber(kafka_settings, session_timeout_s=6)
        async with reading(subscriber, "g", TOPIC, acknowledging=True) as first:
            if refused > 1:
                await until(lambda: len(first.open) == 6)
            async with reading(subscriber, "g", TOPIC, acknowledging=True) as second:
                await until(lambda: len(first.open) == len(second.open) == 3)
                await append(log, range(100))
                await until(lambda: len(first.records) + len(second.records) == 100)

    async def test_a_client_whose_membership_ended_begins_again(self, log: KafkaLog, kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
        async def ended(coordinator: GroupCoordinator, subscription: Any) -> bool:
            monkeypatch.undo()
            raise asyncio.CancelledError

        monkeypatch.setattr(GroupCoordinator, "_do_rejoin_group", ended)
        await append(log, range(100))
        async with reading(FaustSubscriber(kafka_settings), "g", TOPIC) as reader:
            await until(lambda: len(reader.records) == 100)

    async def test_a_reader_whose_flow_nobody_resumes_begins_again(self, log: KafkaLog, kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
        """As where Faust expects another rebalance, which does not come."""

        async def unheard(recovery: Recovery, *args: Any) -> None:
            monkeypatch.setattr(Recovery, "on_rebalance", on_rebalance)

        on_rebalance = Recovery.on_rebalance
        monkeypatch.setattr(Recovery, "on_rebalance", unheard)
        monkeypatch.setattr("streams.kafka.app._STILL_S", 1.0)
        await append(log, range(100))
        async with reading(FaustSubscriber(kafka_settings), "g", TOPIC) as reader:
            await until(lambda: len(reader.records) == 100)

    async def test_what_a_rebalance_dropped_is_read_again_from_the_beginning_of_a_partition_of_which_nothing_is_committed(
        self, log: KafkaLog, kafka_settings: KafkaSettings
    ) -> None:
        await append(log, range(100))
        consumer = AIOKafkaConsumer(kafka_settings.topic_prefix + TOPIC, **kafka_settings.for_aiokafka(), group_id="g", auto_offset_reset="earliest")
        await consumer.start()
        try:
            first = await read(consumer, 100)
            partition, offsets = next(iter(first.items()))
            await consumer.commit({partition: offsets[4]})
            await seek_to_unread(consumer, {})
            assert await read(consumer, 96) == first | {partition: offsets[4:]}
        finally:
            await consumer.stop()


async def read(consumer: AIOKafkaConsumer, count: int) -> dict[Any, list[int]]:
    """Partition → offsets."""
    found: dict[Any, list[int]] = defaultdict(list)
    async with asyncio.timeout(PATIENCE_S):
        while sum(map(len, found.values())) < count:
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                found[partition] += [record.offset for record in records]
    return dict(found)


class TestForeignTransactions:
    async def test_aborted_records_are_neither_read_nor_delivered(self, log: KafkaLog, kafka_settings: KafkaSettings) -> None:
        await asyncio.to_thread(produce_in_transactions, kafka_settings, log)
        assert [record.record.value async for record in log.read(TOPIC)] == [b"kept 1", b"kept 2"]
        async with reading(FaustSubscriber(kafka_settings), "g", TOPIC, acknowledging=True) as reader:
            await until(lambda: len(reader.records) == 2)
            await append(log, range(7, 8))
            await until(lambda: len(reader.records) == 3)
        assert reader.values == [b"kept 1", b"kept 2", b"7"]


def produce_in_transactions(settings: KafkaSettings, log: KafkaLog) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "transactional.id": settings.topic_prefix, "partitioner": "murmur2_random"})
    producer.init_transactions()
    for value, ending in ((b"kept 1", producer.commit_transaction), (b"dropped", producer.abort_transaction), (b"kept 2", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(settings.topic_prefix + TOPIC, value, key=b"7")
        producer.flush()
        ending()


class TestRefusals:
    async def test_a_missing_topic_is_named(self, kafka_settings: KafkaSettings) -> None:
        log = KafkaLog(kafka_settings, append_timeout_s=4)
        with pytest.raises(ConfigurationError, match="nowhere"):
            await log.append([Record("nowhere", b"k", b"v")])
        with pytest.raises(ConfigurationError, match="nowhere"):
            await log.ends("nowhere")
        await log.close()

    async def test_a_record_over_the_limit_is_refused_and_the_next_one_kept(self, log: KafkaLog) -> None:
        with pytest.raises(LimitExceeded):
            await log.append([Record(TOPIC, b"k", bytes(2_000_000))])
        await log.append([Record(TOPIC, b"k", b"small")])
        assert [record.record.value async for record in log.read(TOPIC)] == [b"small"]

    async def test_a_subscription_stops_at_any_moment_of_its_start(self, log: KafkaLog, kafka_settings: KafkaSettings) -> None:
        for milliseconds in (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 25, 30, 40, 50, 70, 100, 150):
            async with reading(FaustSubscriber(kafka_settings), "g", TOPIC):
                await asyncio.sleep(milliseconds / 1000)
            assert [thread for thread in threading.enumerate() if isinstance(thread, FetchingThread)] == []
        async with reading(FaustSubscriber(kafka_settings), "g", TOPIC) as reader:
            await append(log, range(10))
            await until(lambda: len(reader.records) == 10)


class TestBroker:
    async def test_it_is_found_and_stopped_by_whoever_has_its_folder(self, kafka_broker: Broker, tmp_path: Path) -> None:
        here, elsewhere = Broker(tmp_path, heap_mb=256), Broker(tmp_path)
        assert not elsewhere.status().running
        await here.start()
        try:
            pid = elsewhere.status().pid
            await elsewhere.start()
            assert elsewhere.status() == here.status()
            assert elsewhere.status().pid == pid
            await elsewhere.stop()
            await until(lambda: not here.status().running)
        finally:
            await here.stop()

    async def test_a_killed_broker_loses_nothing_acknowledged_and_reading_goes_on(self, kafka_broker: Broker, tmp_path: Path) -> None:
        broker = Broker(tmp_path, heap_mb=256)
        await broker.start()
        settings = KafkaSettings(broker.bootstrap_servers)
        log = KafkaLog(settings, append_timeout_s=60)
        try:
            await log.create_topics({TOPIC: 2}, retention_ms={})
            async with reading(FaustSubscriber(settings, session_timeout_s=6), "g", TOPIC, acknowledging=True) as reader:
                await append(log, range(500))
                await until(lambda: len(reader.records) == 500)
                os.kill(broker.status().pid or 0, signal.SIGKILL)
                await until(lambda: not broker.status().running)
                appending = asyncio.create_task(append(log, range(500, 600)))
                await broker.start()
                assert broker.bootstrap_servers == settings.bootstrap_servers
                await appending
                await until(lambda: {int(value or b"") for value in reader.values} == set(range(600)))
        finally:
            await log.close()
            await broker.stop()

    async def test_a_subscription_waits_for_a_broker_that_comes_later(self, kafka_broker: Broker, tmp_path: Path) -> None:
        broker = Broker(tmp_path, heap_mb=256)
        await broker.start()
        settings = KafkaSettings(broker.bootstrap_servers)
        log = KafkaLog(settings, append_timeout_s=2)
        try:
            await log.create_topics({TOPIC: 1}, retention_ms={})
            await append(log, range(10))
            await broker.stop()
            with pytest.raises(LogUnavailable):
                await append(log, range(10, 20))
            async with reading(FaustSubscriber(settings, session_timeout_s=6), "g", TOPIC) as reader:
                await asyncio.sleep(3)
                await broker.start()
                await until(lambda: {int(value or b"") for value in reader.values} >= set(range(10)))
        finally:
            await log.close()
            await broker.stop()

    async def test_a_topic_that_no_broker_can_show_is_not_taken_for_missing(self, kafka_broker: Broker, tmp_path: Path) -> None:
        broker = Broker(tmp_path, heap_mb=256)
        await broker.start()
        log = KafkaLog(KafkaSettings(broker.bootstrap_servers), append_timeout_s=4)
        try:
            await log.create_topics({TOPIC: 1}, retention_ms={})
            await append(log, range(10))
            await log.create_topics({"others": 1}, retention_ms={})
            await broker.stop()
            with pytest.raises(LogUnavailable):
                await append(log, range(10), "others")
            await broker.start()
            await append(log, range(10, 20), "others")
        finally:
            await log.close()
            await broker.stop()


class Exploding(Collector):
    def offer(self, record: StoredRecord) -> None:
        super().offer(record)
        if len(self.received) == 20:
            raise ZeroDivisionError("in the sink")


async def test_a_sink_that_explodes_leaves_the_rest_unacknowledged(log: KafkaLog, kafka_settings: KafkaSettings) -> None:
    def open_sink(partition: Partition) -> Exploding:
        return Exploding(partition, acknowledging=True, room=None)

    await log.append([Record(TOPIC, b"one", str(number).encode()) for number in range(500)])
    with pytest.raises(ZeroDivisionError):
        await FaustSubscriber(kafka_settings).subscribe("g", TOPIC, open_sink).run()
    assert set((await log.acknowledged("g", TOPIC)).values()) == {20}


async def test_a_topic_that_its_producers_stamp_is_refused_with_the_command_that_mends_it(kafka_settings: KafkaSettings) -> None:
    name = f"{kafka_settings.topic_prefix}raw"
    admin = AdminClient({"bootstrap.servers": kafka_settings.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 1, 1, config={"message.timestamp.type": "CreateTime"})]).values():
        await asyncio.wrap_future(future)
    log = KafkaLog(kafka_settings)
    try:
        with pytest.raises(ConfigurationError, match=f"Topic {name} has message.timestamp.type=CreateTime") as refusal:
            await log.create_topics({"raw": 1, "accepted": 1}, retention_ms={})
        java = java_program()
        assert java is not None
        script, *arguments = refusal.value.remedy.split()
        assert script == "kafka-configs.sh", "which runs the class below"
        subprocess.run([java, "-cp", f"{default_jars_dir()}/*", "kafka.admin.ConfigCommand", *arguments], check=True)
        await log.create_topics({"raw": 1, "accepted": 1}, retention_ms={})
    finally:
        await log.close()
