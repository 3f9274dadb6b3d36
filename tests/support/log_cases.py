"""The logs that the contract suite runs over, and their subscribers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from schemas.ports.log import EventLog, Partition, Subscriber
from schemas.topics import StoredRecord
from sql.database import close_pool, open_pool
from sql.log.event_log import PgLog
from sql.log.reader import PgSubscriber
from streams.kafka.faust_app import FaustConsumer
from streams.kafka.kafka_log import KafkaClientSettings, KafkaLog
from streams.kafka.subscriber import FaustSubscriber
from tests.fakes.memory_log import MemoryLog

TIMEOUT_S = 60


@dataclass(frozen=True)
class LogCase:
    """A log, and two subscribers as if in two processes. `partitions` is what a topic created with
    4 really has; `shares`: members of a group read at the same time.
    """

    name: str
    log: EventLog
    subscriber: Subscriber
    other_subscriber: Subscriber
    partitions: int
    splits_partitions: bool


@asynccontextmanager
async def memory_case(_: None) -> AsyncIterator[LogCase]:
    log = MemoryLog()
    yield LogCase("memory", log, log, log, partitions=4, splits_partitions=True)


@asynccontextmanager
async def kafka_case(settings: KafkaClientSettings) -> AsyncIterator[LogCase]:
    log = KafkaLog(settings)
    try:
        yield LogCase(
            "kafka",
            log,
            FaustSubscriber(settings, session_timeout_s=6),
            FaustSubscriber(settings, session_timeout_s=6),
            partitions=4,
            splits_partitions=True,
        )
    finally:
        await log.close()


@asynccontextmanager
async def postgres_case(dsn: str) -> AsyncIterator[LogCase]:
    pool = await open_pool(dsn, size=8, name="contract")
    log = PgLog(pool)
    try:
        yield LogCase(
            "postgres",
            log,
            PgSubscriber(pool, dsn, owner=uuid4(), poll_s=0.2),
            PgSubscriber(pool, dsn, owner=uuid4(), poll_s=0.2),
            partitions=1,
            splits_partitions=False,
        )
    finally:
        await log.close()
        await close_pool(pool)


CASES: dict[str, tuple[Any, str | None]] = {
    "memory": (memory_case, None),
    "postgres": (postgres_case, "database"),
    "kafka": (kafka_case, "kafka_settings"),
}


KAFKA_PARAM = pytest.param("kafka", marks=pytest.mark.kafka)
on_expiring_logs = pytest.mark.parametrize("open_case", ["postgres", KAFKA_PARAM], indirect=True)
"""In memory nothing does."""
on_offset_reusing_logs = pytest.mark.parametrize(
    "open_case", ["memory", KAFKA_PARAM], indirect=True
)
"""Positions of a database never do."""


@pytest.fixture(params=["memory", "postgres", KAFKA_PARAM])
def open_case(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[LogCase]:
    """Request the server's fixtures while no event loop runs, since they run loops themselves."""
    case, fixture_name = CASES[request.param]
    opened: AbstractAsyncContextManager[LogCase] = case(
        request.getfixturevalue(fixture_name) if fixture_name else None
    )
    return opened


@pytest_asyncio.fixture
async def log_and_subscriber(
    open_case: AbstractAsyncContextManager[LogCase],
) -> AsyncIterator[LogCase]:
    async with open_case as case:
        yield case


@dataclass
class CollectingSink:
    """A sink that collects records and is full while `room` of them are undrained."""

    partition: Partition
    auto_acknowledge: bool
    capacity: int | None
    received: list[StoredRecord] = field(default_factory=list)
    n_taken: int = 0
    times_full: int = 0
    closed: bool = False

    def offer(self, record: StoredRecord) -> None:
        assert not self.closed, "offered after close"
        was_full = self.is_full
        self.received.append(record)
        self.times_full += self.is_full and not was_full
        if self.auto_acknowledge:
            self.partition.acknowledge(record.position.offset + 1)

    @property
    def is_full(self) -> bool:
        return self.capacity is not None and len(self.received) - self.n_taken >= self.capacity

    def drain(self) -> None:
        self.n_taken = len(self.received)
        self.partition.resume()

    async def close(self) -> None:
        self.closed = True


@dataclass
class SubscriptionReader:
    """The records of a subscription over all its assignments."""

    sinks: list[CollectingSink] = field(default_factory=list)

    @property
    def open_sinks(self) -> list[CollectingSink]:
        return [sink for sink in self.sinks if not sink.closed]

    @property
    def records(self) -> list[StoredRecord]:
        return [record for sink in self.sinks for record in sink.received]

    def __str__(self) -> str:
        """For who waits in vain: how far each sink has come, and what Faust thinks of its
        partitions.
        """
        sinks = [
            (sink.partition.number, len(sink.received), sink.n_taken, sink.times_full, sink.closed)
            for sink in self.sinks
        ]
        names = (
            "flow_active",
            "_active_partitions",
            "_paused_partitions",
            "_buffered_partitions",
            "_committed_offset",
        )
        consumers = [one for one in gc.get_objects() if isinstance(one, FaustConsumer)]
        states = [
            {name: getattr(one, name) for name in names}
            | {"rebalancing": one.app.rebalancing, "ready": one.app.assignment.is_ready}
            for one in consumers
        ]
        return f"sinks (number, received, taken, times full, closed) {sinks}; consumers {states}"

    @property
    def values(self) -> list[bytes | None]:
        return [record.record.value for record in self.records]


@asynccontextmanager
async def run_subscription(
    subscriber: Subscriber,
    group: str,
    topic: str,
    *,
    auto_acknowledge: bool = False,
    capacity: Callable[[int], int | None] = lambda number: None,
) -> AsyncIterator[SubscriptionReader]:
    """Run a subscription until the context ends, then stop it cleanly."""
    reader = SubscriptionReader()

    def open_sink(partition: Partition) -> CollectingSink:
        reader.sinks.append(CollectingSink(partition, auto_acknowledge, capacity(partition.number)))
        return reader.sinks[-1]

    running = asyncio.create_task(subscriber.subscribe(group, topic, open_sink).run())
    try:
        yield reader
        assert not running.done(), f"the subscription ended by itself: {running}"
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
