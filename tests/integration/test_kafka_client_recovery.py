"""A Kafka reader recovers from client tasks that end or fail without an error."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from mode.threads import MethodQueue

from streams.kafka.faust_app import FaustConsumer, FetchThread
from streams.kafka.kafka_log import KafkaClientSettings, KafkaLog
from streams.kafka.subscriber import FaustSubscriber
from tests.support.eventually import eventually
from tests.support.kafka_numbers import TOPIC, append_numbers, log
from tests.support.log_cases import SubscriptionReader, run_subscription

pytestmark = pytest.mark.kafka

__all__ = ["log"]


@pytest.fixture
def subscriber(kafka_settings: KafkaClientSettings) -> FaustSubscriber:
    return FaustSubscriber(kafka_settings)


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[FaustConsumer]:
    """Record each consumer that is created."""
    begun: list[FaustConsumer] = []
    begin = FaustConsumer.__init__

    def noted(consumer: FaustConsumer, *args: Any, **kwargs: Any) -> None:
        begin(consumer, *args, **kwargs)
        begun.append(consumer)

    monkeypatch.setattr(FaustConsumer, "__init__", noted)
    return begun


async def wait_for_numbers(reader: SubscriptionReader, *numbers: int) -> None:
    wanted = {str(number).encode() for number in numbers}
    await eventually(lambda: wanted <= {stored.record.value for stored in reader.records})


async def test_both_threads_share_one_queue_despite_slow_creation(
    log: KafkaLog, subscriber: FaustSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = MethodQueue.__init__

    def slowly(queue: MethodQueue, *args: Any, **kwargs: Any) -> None:
        time.sleep(0.6 if threading.current_thread() is threading.main_thread() else 0.3)
        make(queue, *args, **kwargs)

    monkeypatch.setattr(MethodQueue, "__init__", slowly)
    await append_numbers(log, range(1, 2))
    async with run_subscription(subscriber, "g", TOPIC) as reader:
        await wait_for_numbers(reader, 1)


@pytest.mark.parametrize(
    "which", ["_fetcher._fetch_task", "_client._sync_task", "_coordinator._coordination_task"]
)
async def test_subscription_restarts_when_its_client_stops(
    log: KafkaLog, subscriber: FaustSubscriber, consumers: list[FaustConsumer], which: str
) -> None:
    async with run_subscription(subscriber, "g", TOPIC, auto_acknowledge=True) as reader:
        await append_numbers(log, range(1, 2))
        await wait_for_numbers(reader, 1)
        holder, name = which.split(".")
        task = getattr(getattr(consumers[0]._thread._consumer, holder), name)
        task.get_loop().call_soon_threadsafe(task.cancel)
        await eventually(lambda: len(consumers) == 2)
        await append_numbers(log, range(2, 3))
        await wait_for_numbers(reader, 2)


async def test_interrupted_commits_resume(
    log: KafkaLog,
    subscriber: FaustSubscriber,
    consumers: list[FaustConsumer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken_off(consumer: FaustConsumer, *args: Any, **kwargs: Any) -> bool:
        monkeypatch.setattr(FaustConsumer, "commit", commit)
        raise asyncio.CancelledError

    commit = FaustConsumer.commit
    async with run_subscription(subscriber, "g", TOPIC, auto_acknowledge=True) as reader:
        await eventually(lambda: len(reader.open_sinks) == 6)
        monkeypatch.setattr(FaustConsumer, "commit", broken_off)
        await append_numbers(log, range(1, 2))
        await eventually(lambda: len(consumers) == 2)
        await eventually(
            lambda: log.fetch_committed_offsets("g", TOPIC),
            lambda offsets: sum(offsets.values()) >= 1,
        )


async def test_failed_offset_fetch_is_retried(
    log: KafkaLog,
    subscriber: FaustSubscriber,
    consumers: list[FaustConsumer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await append_numbers(log, range(1, 2))
    async with run_subscription(subscriber, "g", TOPIC, auto_acknowledge=True) as reader:
        await wait_for_numbers(reader, 1)
    ask, refused = GroupCoordinator._send_req, 0

    async def refusing(coordinator: GroupCoordinator, request: Any) -> Any:
        nonlocal refused
        if isinstance(request, OffsetFetchRequest) and refused < 2:
            refused += 1
            return SimpleNamespace(error_code=16, topics=[])
        return await ask(coordinator, request)

    monkeypatch.setattr(GroupCoordinator, "_send_req", refusing)
    async with run_subscription(subscriber, "g", TOPIC, auto_acknowledge=True) as again:
        await append_numbers(log, range(2, 3))
        await wait_for_numbers(again, 2)
        assert [stored.record.value for stored in again.records] == [b"2"], (
            "what was acknowledged is not read again"
        )
    assert refused == 2


@contextmanager
def forbid_warnings() -> Iterator[None]:
    """Fail if a resource is left open."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


async def test_producer_that_does_not_stop_in_time_leaves_no_connection_open(
    log: KafkaLog, kafka_settings: KafkaClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for_ever(accumulator: MessageAccumulator) -> None:
        await asyncio.Event().wait()

    slow = KafkaLog(kafka_settings)
    await append_numbers(slow, range(1, 2))
    slow._producer._timeout_s = 0.1
    monkeypatch.setattr(MessageAccumulator, "close", wait_for_ever)
    producer = slow._producer._producer
    assert producer is not None
    await slow.close()
    assert not any(connection.connected() for connection in producer.client._conns.values())
    await producer._sender.close()


async def test_consumer_that_fails_to_stop_leaves_no_connection_open(
    log: KafkaLog, subscriber: FaustSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = Fetcher.close

    async def fail_to_close(fetcher: Fetcher) -> None:
        await close(fetcher)
        raise KafkaError("The task ended.")

    monkeypatch.setattr(Fetcher, "close", fail_to_close)
    with forbid_warnings():
        await append_numbers(log, range(1, 2))
        async with run_subscription(subscriber, "g", TOPIC, auto_acknowledge=True) as reader:
            await wait_for_numbers(reader, 1)
        await eventually(lambda: not any(isinstance(t, FetchThread) for t in threading.enumerate()))


@pytest.fixture
def metadata_requested(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that is set when a client requests metadata, as each does when it starts."""
    requested = asyncio.Event()
    send = AIOKafkaConnection.send

    def send_noted(connection: AIOKafkaConnection, request: Any, **kwargs: Any) -> Any:
        if isinstance(request, MetadataRequest):
            requested.set()
        return send(connection, request, **kwargs)

    monkeypatch.setattr(AIOKafkaConnection, "send", send_noted)
    return requested


@pytest.mark.parametrize("client", ["producer", "group offsets"])
async def test_cancelled_start_leaves_no_connection_open(
    log: KafkaLog, metadata_requested: asyncio.Event, client: str
) -> None:
    with forbid_warnings():
        job: asyncio.Task[Any] = asyncio.create_task(
            append_numbers(log, range(1, 2))
            if client == "producer"
            else log.fetch_committed_offsets("g", TOPIC)
        )
        await metadata_requested.wait()
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job


async def test_close_waits_for_a_starting_reader_of_offsets(
    log: KafkaLog, metadata_requested: asyncio.Event
) -> None:
    reading = asyncio.create_task(log._group_offsets._get_client())
    await metadata_requested.wait()
    await log._group_offsets.close()
    client = await reading
    assert log._group_offsets._client is None
    assert not any(connection.connected() for connection in client._client._conns.values())
