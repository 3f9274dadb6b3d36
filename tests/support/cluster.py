"""Run worker processes on real Kafka and observe them as an external client does."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from processors import STAGES
from services.generations.decisions import FIRST_GENERATION
from sql.database import close_pool, open_pool
from sql.operations.integrity import compute_checksum
from streams.kafka.client import KafkaClientSettings
from streams.kafka.kafka_log import KafkaLog
from streams.stage import Stage
from streams.stage_consumer import format_group_name
from tests.support.eventually import eventually, eventually_blocking
from tests.support.forked_process import fork_process
from tests.support.null_worker import READY, NullWorkerOrders, run_null_worker
from tests.support.postgres_fixture import run_in_thread

T = TypeVar("T")
TIMEOUT_S = 120.0
COORDINATOR_NOT_READY = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors of a broker that is still loading a group."""


class ProcessHandle(Protocol):
    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def send_signal(self, number: int) -> None: ...

    def wait(self) -> int: ...


@dataclass
class WorkerProcess:
    process: ProcessHandle
    notes: Path
    errors: Path

    @property
    def note_lines(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    @property
    def is_ready(self) -> bool:
        assert self.process.poll() is None, f"the worker ended: {self.errors.read_text()[-3000:]}"
        return READY in self.note_lines

    @property
    def embedded_words(self) -> list[str]:
        """Return the last word of each text that this worker has embedded."""
        return [line for line in self.note_lines if line != READY]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait()


@dataclass
class WorkerCluster:
    """Worker processes with one prefix, one database and one data folder."""

    settings: KafkaClientSettings
    dsn: str
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: list[WorkerProcess] = field(default_factory=list)

    def start_worker(self, *stages: str, real_parser: bool = False) -> WorkerProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"worker-{len(self.workers) + 1}"
        notes, errors = self.folder / f"{name}.notes", self.folder / f"{name}.log"
        orders = NullWorkerOrders(str(notes), stages or ("all",), real_parser)
        self.workers.append(
            WorkerProcess(
                fork_process(
                    run_null_worker, orders, log=errors, environment=self.worker_environment()
                ),
                notes,
                errors,
            )
        )
        return self.workers[-1]

    def worker_environment(self) -> dict[str, str]:
        return {
            "ANABRANCH_DATA_DIR": str(self.folder / "data"),
            "ANABRANCH_DATABASE__URL": self.dsn,
            "ANABRANCH_DATABASE__WORKER_POOL": "4",
            "ANABRANCH_KAFKA__BOOTSTRAP_SERVERS": self.settings.bootstrap_servers,
            "ANABRANCH_KAFKA__TOPIC_PREFIX": self.settings.topic_prefix,
            "ANABRANCH_KAFKA__SESSION_TIMEOUT_S": "6",
            "ANABRANCH_LOG__ENCRYPT": "false",
            **self.environment,
        }

    def topic_name(self, name: str) -> str:
        return self.settings.topic_prefix + name

    def wait_for_members(self, stage_group: str, count: int) -> None:
        """Wait until `count` workers share the group's partitions without a rebalance."""
        group = self.settings.topic_prefix + stage_group
        admin = AdminClient({"bootstrap.servers": self.settings.bootstrap_servers})

        def joined() -> bool:
            try:
                found = admin.describe_consumer_groups([group])[group].result()
            except KafkaException as error:
                assert error.args[0].code() in COORDINATOR_NOT_READY, error
                return False
            return (
                found.state == ConsumerGroupState.STABLE
                and sum(bool(member.assignment.topic_partitions) for member in found.members)
                == count
            )

        eventually_blocking(joined, what=f"{count} members of {group}")

    def push(self, records: Iterable[tuple[str | None, Mapping[str, str], bytes]]) -> None:
        """Append (key, headers, value) to `raw`."""
        producer = Producer(
            {"bootstrap.servers": self.settings.bootstrap_servers, "enable.idempotence": True}
        )
        for key, headers, value in records:
            producer.produce(self.topic_name("raw"), value, key=key, headers=dict(headers))
        assert producer.flush(30) == 0

    def wait_until_idle(self, stages: Iterable[Stage] = STAGES) -> None:
        """Wait until the stages have processed all records of their topics."""

        async def quiet(log: KafkaLog) -> None:
            async def find_unfinished() -> dict[str, dict[int, tuple[int, int]]]:
                return {
                    stage.name: places
                    for stage in stages
                    if (places := await _find_unread_ranges(log, stage))
                }

            await eventually(
                find_unfinished,
                lambda unfinished: not unfinished,
                what="all stages to finish every partition",
            )

        self._run_with_log(quiet)

    def count_unfinished(self, stage: Stage) -> int:
        """Count the events that a stage has not finished."""
        unread = self._run_with_log(lambda log: _find_unread_ranges(log, stage))
        return sum(after_last - read for read, after_last in unread.values())

    def _run_with_log(self, work: Callable[[KafkaLog], Awaitable[T]]) -> T:
        async def run() -> T:
            log = KafkaLog(self.settings)
            try:
                return await work(log)
            finally:
                await log.close()

        return run_in_thread(run)

    def compute_checksum(self) -> dict[str, Any]:
        async def summed() -> dict[str, Any]:
            pool = await open_pool(self.dsn, size=2, name="test")
            try:
                return await compute_checksum(pool)
            finally:
                await close_pool(pool)

        return run_in_thread(summed)

    def select(self, query: str) -> list[tuple[Any, ...]]:
        async def rows() -> list[tuple[Any, ...]]:
            pool = await open_pool(self.dsn, size=2, name="test")
            try:
                return [tuple(row) for row in await pool.fetch(query)]
            finally:
                await close_pool(pool)

        return run_in_thread(rows)


@contextmanager
def run_cluster(
    settings: KafkaClientSettings, dsn: str, folder: Path, **environment: str
) -> Iterator[WorkerCluster]:
    """Yield a cluster and stop its workers at the end."""
    found = WorkerCluster(settings, dsn, folder, environment)
    try:
        yield found
    finally:
        for worker in found.workers:
            worker.stop(signal.SIGKILL)


async def _find_unread_ranges(log: KafkaLog, stage: Stage) -> dict[int, tuple[int, int]]:
    """Return (first unacknowledged offset, end offset) of each partition that lags."""
    ends = await log.fetch_offset_bounds(stage.topic)
    read = await log.fetch_committed_offsets(
        format_group_name(stage.name, None if stage.serves_all_generations else FIRST_GENERATION),
        stage.topic,
    )
    places = {
        partition: (max(first, read.get(partition, 0)), after_last)
        for partition, (first, after_last) in ends.items()
    }
    return {partition: place for partition, place in places.items() if place[0] < place[1]}


@dataclass(frozen=True)
class ConsumedRecord:
    """A record as a plain consumer sees it."""

    key: str
    headers: Mapping[str, str]
    value: bytes

    @classmethod
    def from_message(cls, message: Message) -> ConsumedRecord:
        assert message.error() is None, message.error()
        headers = {
            name: value.decode() if isinstance(value, bytes) else ""
            for name, value in dict(message.headers() or []).items()
        }
        key = message.key() or b""
        return cls(key.decode() if isinstance(key, bytes) else key, headers, message.value() or b"")

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.value))


class TopicTail:
    """A topic read from its beginning by a consumer without a group."""

    def __init__(self, settings: KafkaClientSettings, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": settings.bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
            }
        )
        self._records: list[ConsumedRecord] = []
        name = settings.topic_prefix + topic
        eventually_blocking(lambda: bool(self._list_partitions(name)), what=f"topic {name}")
        self._consumer.assign(
            [
                TopicPartition(name, partition, OFFSET_BEGINNING)
                for partition in self._list_partitions(name)
            ]
        )

    def _list_partitions(self, name: str) -> list[int]:
        return list(self._consumer.list_topics(name, timeout=60).topics[name].partitions)

    def poll_records(self) -> list[ConsumedRecord]:
        """Return all records received so far."""
        self._records += [
            ConsumedRecord.from_message(message)
            for message in self._consumer.consume(500, 0.2)
            if not _is_transient(message.error())
        ]
        return self._records

    def close(self) -> None:
        self._consumer.close()


def _is_transient(error: KafkaError | None) -> bool:
    """Return whether the consumer retries the error by itself."""
    return error is not None and (
        error.retriable()
        or error.code()
        in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    )


@contextmanager
def tail_topic(settings: KafkaClientSettings, topic: str) -> Iterator[TopicTail]:
    reading = TopicTail(settings, topic)
    try:
        yield reading
    finally:
        reading.close()


def collect_outcomes(outcomes: TopicTail) -> dict[str, set[tuple[str, str]]]:
    """Return type and id of the outcomes so far, by event."""
    outcomes_by_event: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for outcome in outcomes.poll_records():
        outcomes_by_event[outcome.data["event_id"]].add(
            (outcome.headers["ce_type"], outcome.headers["ce_id"])
        )
    return outcomes_by_event
