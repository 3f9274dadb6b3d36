"""Workers on real Kafka: killed, scaled, slowed down, cut off. Nothing may be lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from schemas.errors import ConfigurationError, LimitExceeded, LogUnavailable
from schemas.ports.log import Partition
from schemas.records import Record, StoredRecord
from streams.kafka.app import FetchingThread
from streams.kafka.broker import Broker
from streams.kafka.jars import default_jars_dir, java_program
from streams.kafka.log import KafkaLog, KafkaSettings
from streams.kafka.worker import FaustSubscriber
from tests.contract.logs import Collector, reading, until
from tests.forked import Forked, forked
from tests.integration.kafka_numbers import TOPIC, append, log
from tests.integration.kafka_worker import Orders, run

__all__ = ["log"]

pytestmark = pytest.mark.kafka


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
