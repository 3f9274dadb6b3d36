"""Kill, scale, slow down and disconnect workers on real Kafka without losing records."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from schemas.errors import ConfigurationError, LimitExceeded, LogUnavailable
from schemas.ports.log import Partition
from schemas.topics import Record, StoredRecord
from streams.kafka.broker import Broker, find_java, get_default_jars_dir
from streams.kafka.faust_app import FetchThread
from streams.kafka.kafka_log import KafkaClientSettings, KafkaLog
from streams.kafka.subscriber import FaustSubscriber
from tests.support.eventually import eventually
from tests.support.forked_process import ForkedProcess, fork_process
from tests.support.kafka_fixture import require_kafka, run_broker
from tests.support.kafka_numbers import TOPIC, append_numbers, log
from tests.support.kafka_worker import KafkaWorkerOrders, run_kafka_worker
from tests.support.log_cases import CollectingSink, run_subscription

__all__ = ["log"]

pytestmark = pytest.mark.kafka


class KafkaWorkerProcesses:
    """Worker processes and the records that they have noted together."""

    def __init__(self, settings: KafkaClientSettings, folder: Path, stack: ExitStack) -> None:
        self._settings = settings
        self._folder = folder
        self._stack = stack
        self._started = 0

    def start_worker(self) -> ForkedProcess:
        self._started += 1
        orders = KafkaWorkerOrders(
            self._settings, str(self._folder / f"notes-{self._started}"), TOPIC
        )
        worker = fork_process(
            run_kafka_worker, orders, log=self._folder / f"log-{self._started}", environment={}
        )
        self._stack.callback(stop_process, worker, signal.SIGKILL)
        return worker

    def list_noted(self) -> set[int]:
        return {
            int(line)
            for notes in self._folder.glob("notes-*")
            for line in notes.read_text().splitlines()
        }

    def count_noted_by(self, number: int) -> int:
        notes = self._folder / f"notes-{number}"
        return len(notes.read_text().splitlines()) if notes.exists() else 0


def stop_process(worker: ForkedProcess, how: signal.Signals) -> None:
    if worker.poll() is None:
        worker.send_signal(how)
        worker.wait()


@pytest.fixture
def workers(kafka_settings: KafkaClientSettings, tmp_path: Path) -> Iterator[KafkaWorkerProcesses]:
    with ExitStack() as stack:
        yield KafkaWorkerProcesses(kafka_settings, tmp_path, stack)


async def append_slowly(log: KafkaLog, count: int) -> None:
    for start in range(0, count, 20):
        await append_numbers(log, range(start, start + 20))
        await asyncio.sleep(0.1)


async def test_workers_that_join_leave_and_die_lose_nothing(
    log: KafkaLog, workers: KafkaWorkerProcesses
) -> None:
    trickle = asyncio.create_task(append_slowly(log, 3_000))
    first = workers.start_worker()
    await eventually(lambda: workers.count_noted_by(1) > 50)
    workers.start_worker()
    await eventually(lambda: workers.count_noted_by(2) > 50)
    third = workers.start_worker()
    await eventually(lambda: workers.count_noted_by(3) > 50)
    stop_process(third, signal.SIGINT)
    assert not trickle.done(), "records are left for the one that takes over"
    stop_process(first, signal.SIGKILL)
    workers.start_worker()
    await eventually(lambda: workers.count_noted_by(4) > 50)
    await trickle
    await eventually(workers.list_noted, lambda noted: noted == set(range(3_000)))


class TestSlowConsumers:
    async def test_blocked_sink_beyond_poll_interval_keeps_partitions(
        self, log: KafkaLog, kafka_settings: KafkaClientSettings
    ) -> None:
        subscriber = FaustSubscriber(kafka_settings, session_timeout_s=6, max_poll_interval_s=2)
        await append_numbers(log, range(2_000))
        async with run_subscription(subscriber, "g", TOPIC, capacity=lambda number: 1) as reader:
            await eventually(
                lambda: (
                    len(reader.open_sinks) == 6 and all(sink.is_full for sink in reader.open_sinks)
                )
            )
            await asyncio.sleep(5)
            assert len(reader.open_sinks) == len(reader.sinks) == 6
            while len(reader.records) < 2_000:
                for sink in reader.open_sinks:
                    sink.drain()
                await asyncio.sleep(0.001)
        assert len(reader.sinks) == 6
        assert Counter(reader.values) == Counter(str(number).encode() for number in range(2_000))

    async def test_busy_event_loop_beyond_session_timeout_keeps_partitions(
        self, log: KafkaLog, kafka_settings: KafkaClientSettings
    ) -> None:
        async with run_subscription(
            FaustSubscriber(kafka_settings, session_timeout_s=6), "g", TOPIC, auto_acknowledge=True
        ) as reader:
            await append_numbers(log, range(10))
            await eventually(lambda: len(reader.records) == 10)
            time.sleep(8)
            await append_numbers(log, range(10, 100))
            await eventually(lambda: len(reader.records) == 100)
        assert len(reader.sinks) == 6

    async def test_memory_stays_bounded_while_a_sink_is_full(
        self, log: KafkaLog, kafka_settings: KafkaClientSettings
    ) -> None:
        await log.append([Record(TOPIC, b"one", bytes(100_000)) for _ in range(1_000)])
        async with run_subscription(
            FaustSubscriber(kafka_settings), "g", TOPIC, capacity=lambda number: 5
        ) as reader:
            await eventually(lambda: any(sink.is_full for sink in reader.open_sinks))
            await asyncio.sleep(2)
            assert len(reader.records) <= 5 + 100, "at most what one fetch handed over"
            assert len(reader.open_sinks) == 6


class TestProducerTransactions:
    async def test_aborted_records_are_neither_read_nor_delivered(
        self, log: KafkaLog, kafka_settings: KafkaClientSettings
    ) -> None:
        await asyncio.to_thread(produce_in_transactions, kafka_settings, log)

        async def read_values() -> list[bytes | None]:
            return [record.record.value async for record in log.read(TOPIC)]

        # The broker ends a transaction a moment after its commit was acknowledged.
        await eventually(read_values, lambda values: len(values) >= 2)
        assert await read_values() == [b"kept 1", b"kept 2"]
        async with run_subscription(
            FaustSubscriber(kafka_settings), "g", TOPIC, auto_acknowledge=True
        ) as reader:
            await eventually(lambda: len(reader.records) == 2)
            await append_numbers(log, range(7, 8))
            await eventually(lambda: len(reader.records) == 3)
        assert reader.values == [b"kept 1", b"kept 2", b"7"]


def produce_in_transactions(settings: KafkaClientSettings, log: KafkaLog) -> None:
    producer = Producer(
        {
            "bootstrap.servers": settings.bootstrap_servers,
            "transactional.id": settings.topic_prefix,
            "partitioner": "murmur2_random",
        }
    )
    producer.init_transactions()
    for value, ending in (
        (b"kept 1", producer.commit_transaction),
        (b"dropped", producer.abort_transaction),
        (b"kept 2", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(settings.topic_prefix + TOPIC, value, key=b"7")
        producer.flush()
        ending()


class TestRejections:
    async def test_missing_topic_is_named(self, kafka_settings: KafkaClientSettings) -> None:
        log = KafkaLog(kafka_settings, append_timeout_s=4)
        with pytest.raises(ConfigurationError, match="nowhere"):
            await log.append([Record("nowhere", b"k", b"v")])
        with pytest.raises(ConfigurationError, match="nowhere"):
            await log.fetch_offset_bounds("nowhere")
        await log.close()

    async def test_oversized_record_is_rejected_and_next_is_stored(self, log: KafkaLog) -> None:
        with pytest.raises(LimitExceeded):
            await log.append([Record(TOPIC, b"k", bytes(2_000_000))])
        await log.append([Record(TOPIC, b"k", b"small")])
        assert [record.record.value async for record in log.read(TOPIC)] == [b"small"]

    async def test_subscription_can_stop_at_any_point_of_startup(
        self, log: KafkaLog, kafka_settings: KafkaClientSettings
    ) -> None:
        for milliseconds in (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 25, 30, 40, 50, 70, 100, 150):
            async with run_subscription(FaustSubscriber(kafka_settings), "g", TOPIC):
                await asyncio.sleep(milliseconds / 1000)
            assert [
                thread for thread in threading.enumerate() if isinstance(thread, FetchThread)
            ] == []
        async with run_subscription(FaustSubscriber(kafka_settings), "g", TOPIC) as reader:
            await append_numbers(log, range(10))
            await eventually(lambda: len(reader.records) == 10)


@pytest.fixture(scope="module")
def running_broker() -> Iterator[Broker]:
    require_kafka()
    with run_broker() as broker:
        yield broker


@pytest.fixture
async def stoppable_broker(running_broker: Broker) -> Broker:
    """A node that runs, and that no other file uses."""
    await running_broker.start()
    return running_broker


class TestBroker:
    async def test_broker_is_found_and_stopped_by_its_folder(
        self, stoppable_broker: Broker, tmp_path: Path
    ) -> None:
        here, elsewhere = stoppable_broker, Broker(stoppable_broker.data_dir)
        assert not Broker(tmp_path).status().is_running
        pid = elsewhere.status().pid
        await elsewhere.start()
        assert elsewhere.status() == here.status()
        assert elsewhere.status().pid == pid
        await elsewhere.stop()
        await eventually(lambda: not here.status().is_running)

    async def test_stopped_broker_is_waited_for_and_its_topics_not_missing(
        self, stoppable_broker: Broker
    ) -> None:
        broker = stoppable_broker
        settings = KafkaClientSettings(broker.bootstrap_servers, topic_prefix=f"{uuid4().hex}.")
        log = KafkaLog(settings, append_timeout_s=2)
        try:
            await log.create_topics({TOPIC: 1, "others": 1}, retention_ms={})
            await append_numbers(log, range(10))
            await broker.stop()
            for topic in (TOPIC, "others"):
                with pytest.raises(LogUnavailable):
                    await append_numbers(log, range(10, 20), topic)
            async with run_subscription(
                FaustSubscriber(settings, session_timeout_s=6), "g", TOPIC
            ) as reader:
                await asyncio.sleep(3)
                await broker.start()
                await eventually(
                    lambda: {int(value or b"") for value in reader.values} >= set(range(10))
                )
            await append_numbers(log, range(10, 20), "others")
        finally:
            await log.close()


class FailingSink(CollectingSink):
    def offer(self, record: StoredRecord) -> None:
        super().offer(record)
        if len(self.received) == 20:
            raise ZeroDivisionError("in the sink")


async def test_failing_sink_leaves_later_records_unacknowledged(
    log: KafkaLog, kafka_settings: KafkaClientSettings
) -> None:
    def open_sink(partition: Partition) -> FailingSink:
        return FailingSink(partition, auto_acknowledge=True, capacity=None)

    await log.append([Record(TOPIC, b"one", str(number).encode()) for number in range(500)])
    with pytest.raises(ZeroDivisionError):
        await FaustSubscriber(kafka_settings).subscribe("g", TOPIC, open_sink).run()
    assert set((await log.fetch_committed_offsets("g", TOPIC)).values()) == {20}


async def test_producer_timestamped_topic_is_rejected_with_fix_command(
    kafka_settings: KafkaClientSettings,
) -> None:
    name = f"{kafka_settings.topic_prefix}raw"
    admin = AdminClient({"bootstrap.servers": kafka_settings.bootstrap_servers})
    for future in admin.create_topics(
        [NewTopic(name, 1, 1, config={"message.timestamp.type": "CreateTime"})]
    ).values():
        await asyncio.wrap_future(future)
    log = KafkaLog(kafka_settings)
    try:
        with pytest.raises(
            ConfigurationError, match=f"Topic {name} has message.timestamp.type=CreateTime"
        ) as refusal:
            await log.create_topics({"raw": 1, "accepted": 1}, retention_ms={})
        java = find_java()
        assert java is not None
        script, *arguments = refusal.value.remedy.split()
        assert script == "kafka-configs.sh", "which runs the class below"
        subprocess.run(
            [
                java,
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                f"{get_default_jars_dir()}/*",
                "kafka.admin.ConfigCommand",
                *arguments,
            ],
            check=True,
        )
        await log.create_topics({"raw": 1, "accepted": 1}, retention_ms={})
    finally:
        await log.close()
