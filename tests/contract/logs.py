"""The logs that the contract suite runs over, and what it reads them with."""

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
from schemas.records import StoredRecord
from sql.log import PgLog
from sql.log_reader import PgSubscriber
from sql.pool import close_pool, open_pool
from streams.kafka.app import StageConsumer
from streams.kafka.log import KafkaLog, KafkaSettings
from streams.kafka.worker import FaustSubscriber
from streams.memory import MemoryLog

PATIENCE_S = 60


@dataclass(frozen=True)
class LogCase:
    """A log, and two subscribers as if in two processes. `partitions` is what a topic created with 4 really has; `shares`: members of a group read at the same time."""

    name: str
    log: EventLog
    subscriber: Subscriber
    rival: Subscriber
    partitions: int
    shares: bool


@asynccontextmanager
async def memory_case(place: None) -> AsyncIterator[LogCase]:
    log = MemoryLog()
    yield LogCase("memory", log, log, log, partitions=4, shares=True)


@asynccontextmanager
async def kafka_case(settings: KafkaSettings) -> AsyncIterator[LogCase]:
    log = KafkaLog(settings)
    try:
        yield LogCase("kafka", log, FaustSubscriber(settings, session_timeout_s=6), FaustSubscriber(settings, session_timeout_s=6), partitions=4, shares=True)
    finally:
        await log.close()


@asynccontextmanager
async def postgres_case(dsn: str) -> AsyncIterator[LogCase]:
    pool = await open_pool(dsn, size=8, name="contract")
    log = PgLog(pool)
    try:
        yield LogCase(
            "postgres", log, PgSubscriber(pool, dsn, owner=uuid4(), poll_s=0.2), PgSubscriber(pool, dsn, owner=uuid4(), poll_s=0.2), partitions=1, shares=False
        )
    finally:
        await log.close()
        await close_pool(pool)


CASES: dict[str, tuple[Any, str | None]] = {"memory": (memory_case, None), "postgres": (postgres_case, "database"), "kafka": (kafka_case, "kafka_settings")}


KAFKA = pytest.param("kafka", marks=pytest.mark.kafka)
where_records_expire = pytest.mark.parametrize("open_case", ["postgres", KAFKA], indirect=True)
"""In memory nothing does."""
where_offsets_come_again = pytest.mark.parametrize("open_case", ["memory", KAFKA], indirect=True)
"""Positions of a database never do."""


@pytest.fixture(params=["memory", "postgres", KAFKA])
def open_case(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[LogCase]:
    """Asks for the server's fixtures while no event loop runs: they have loops of their own."""
    case, place = CASES[request.param]
    opened: AbstractAsyncContextManager[LogCase] = case(request.getfixturevalue(place) if place else None)
    return opened


@pytest_asyncio.fixture
async def log_and_subscriber(open_case: AbstractAsyncContextManager[LogCase]) -> AsyncIterator[LogCase]:
    async with open_case as case:
        yield case


@dataclass
class Collector:
    """A sink that keeps what it is offered. It is full while it holds `room` records that nobody has taken."""

    partition: Partition
    acknowledging: bool
    room: int | None
    received: list[StoredRecord] = field(default_factory=list)
    taken: int = 0
    times_full: int = 0
    closed: bool = False

    def offer(self, record: StoredRecord) -> None:
        assert not self.closed, "offered after close"
        was_full = self.full
        self.received.append(record)
        self.times_full += self.full and not was_full
        if self.acknowledging:
            self.partition.acknowledge(record.position.offset + 1)

    @property
    def full(self) -> bool:
        return self.room is not None and len(self.received) - self.taken >= self.room

    def take_all(self) -> None:
        self.taken = len(self.received)
        self.partition.resume()

    async def close(self) -> None:
        self.closed = True


@dataclass
class Reader:
    """What a subscription has delivered, over all its assignments."""

    sinks: list[Collector] = field(default_factory=list)

    @property
    def open(self) -> list[Collector]:
        return [sink for sink in self.sinks if not sink.closed]

    @property
    def records(self) -> list[StoredRecord]:
        return [record for sink in self.sinks for record in sink.received]

    def __str__(self) -> str:
        """For who waits in vain: how far each sink has come, and what Faust thinks of its partitions."""
        sinks = [(sink.partition.number, len(sink.received), sink.taken, sink.times_full, sink.closed) for sink in self.sinks]
        names = ("flow_active", "_active_partitions", "_paused_partitions", "_buffered_partitions", "_committed_offset")
        consumers = [one for one in gc.get_objects() if isinstance(one, StageConsumer)]
        states = [
            {name: getattr(one, name) for name in names} | {"rebalancing": one.app.rebalancing, "ready": one.app.assignment.is_ready} for one in consumers
        ]
        return f"sinks (number, received, taken, times full, closed) {sinks}; consumers {states}"

    @property
    def values(self) -> list[bytes | None]:
        return [record.record.value for record in self.records]


@asynccontextmanager
async def reading(
    subscriber: Subscriber, group: str, topic: str, *, acknowledging: bool = False, room: Callable[[int], int | None] = lambda number: None
) -> AsyncIterator[Reader]:
    """A subscription that runs until the context ends, then stops cleanly."""
    reader = Reader()

    def open_sink(partition: Partition) -> Collector:
        reader.sinks.append(Collector(partition, acknowledging, room(partition.number)))
        return reader.sinks[-1]

    running = asyncio.create_task(subscriber.subscribe(group, topic, open_sink).run())
    try:
        yield reader
        assert not running.done(), f"the subscription ended by itself: {running}"
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.01)
