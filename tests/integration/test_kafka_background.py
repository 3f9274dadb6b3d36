"""What works behind a reader on real Kafka and ends, or answers in the wrong moment: nothing tells of it by itself, and the reader goes on all the same."""

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

from streams.kafka.app import StageConsumer
from streams.kafka.log import KafkaLog, KafkaSettings
from streams.kafka.worker import FaustSubscriber
from tests.contract.logs import Reader, reading, until
from tests.integration.kafka_numbers import TOPIC, append, log

pytestmark = pytest.mark.kafka

__all__ = ["log"]


@pytest.fixture
def subscriber(kafka_settings: KafkaSettings) -> FaustSubscriber:
    return FaustSubscriber(kafka_settings)


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[StageConsumer]:
    """Those that are begun, one after the other."""
    begun: list[StageConsumer] = []
    begin = StageConsumer.__init__

    def noted(consumer: StageConsumer, *args: Any, **kwargs: Any) -> None:
        begin(consumer, *args, **kwargs)
        begun.append(consumer)

    monkeypatch.setattr(StageConsumer, "__init__", noted)
    return begun


async def come(reader: Reader, *numbers: int) -> None:
    wanted = {str(number).encode() for number in numbers}
    await until(lambda: wanted <= {stored.record.value for stored in reader.records})


async def test_both_threads_call_into_one_queue_however_long_it_takes_to_make(
    log: KafkaLog, subscriber: FaustSubscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = MethodQueue.__init__

    def slowly(queue: MethodQueue, *args: Any, **kwargs: Any) -> None:
        time.sleep(0.6 if threading.current_thread() is threading.main_thread() else 0.3)
        make(queue, *args, **kwargs)

    monkeypatch.setattr(MethodQueue, "__init__", slowly)
    await append(log, range(1, 2))
    async with reading(subscriber, "g", TOPIC) as reader:
        await come(reader, 1)


@pytest.mark.parametrize("which", ["_fetcher._fetch_task", "_client._sync_task", "_coordinator._coordination_task"])
async def test_a_reader_whose_client_stops_working_begins_again(log: KafkaLog, subscriber: FaustSubscriber, consumers: list[StageConsumer], which: str) -> None:
    async with reading(subscriber, "g", TOPIC, acknowledging=True) as reader:
        await append(log, range(1, 2))
        await come(reader, 1)
        holder, name = which.split(".")
        task = getattr(getattr(consumers[0]._thread._consumer, holder), name)
        task.get_loop().call_soon_threadsafe(task.cancel)
        await until(lambda: len(consumers) == 2)
        await append(log, range(2, 3))
        await come(reader, 2)


async def test_commits_that_were_broken_off_go_on(
    log: KafkaLog, subscriber: FaustSubscriber, consumers: list[StageConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken_off(consumer: StageConsumer, *args: Any, **kwargs: Any) -> bool:
        monkeypatch.setattr(StageConsumer, "commit", commit)
        raise asyncio.CancelledError

    commit = StageConsumer.commit
    async with reading(subscriber, "g", TOPIC, acknowledging=True) as reader:
        await until(lambda: len(reader.open) == 6)
        monkeypatch.setattr(StageConsumer, "commit", broken_off)
        await append(log, range(1, 2))
        await until(lambda: len(consumers) == 2)
        async with asyncio.timeout(60):
            while sum((await log.acknowledged("g", TOPIC)).values()) < 1:
                await asyncio.sleep(0.05)


async def test_a_coordinator_that_refuses_to_tell_what_was_read_is_asked_again(
    log: KafkaLog, subscriber: FaustSubscriber, consumers: list[StageConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(log, range(1, 2))
    async with reading(subscriber, "g", TOPIC, acknowledging=True) as reader:
        await come(reader, 1)
    ask, refused = GroupCoordinator._send_req, 0

    async def refusing(coordinator: GroupCoordinator, request: Any) -> Any:
        nonlocal refused
        if isinstance(request, OffsetFetchRequest) and refused < 2:
            refused += 1
            return SimpleNamespace(error_code=16, topics=[])
        return await ask(coordinator, request)

    monkeypatch.setattr(GroupCoordinator, "_send_req", refusing)
    async with reading(subscriber, "g", TOPIC, acknowledging=True) as again:
        await append(log, range(2, 3))
        await come(again, 2)
        assert [stored.record.value for stored in again.records] == [b"2"], "what was acknowledged is not read again"
    assert refused == 2
