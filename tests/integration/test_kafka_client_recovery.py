"""A Kafka reader recovers from client tasks that end or fail without an error."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.protocol.commit import OffsetFetchRequest
from mode.threads import MethodQueue

from streams.kafka.faust_app import FaustConsumer
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
