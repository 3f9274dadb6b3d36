"""Group members on real Kafka join, leave, are refused or time out without losing records."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaError
from faust.tables.recovery import Recovery

from schemas.ports.log import Partition
from streams.kafka.faust_app import seek_to_first_unread
from streams.kafka.kafka_log import KafkaClientSettings, KafkaLog
from streams.kafka.subscriber import FaustSubscriber
from tests.support.eventually import eventually
from tests.support.kafka_numbers import TOPIC, append_numbers, log
from tests.support.log_cases import TIMEOUT_S, CollectingSink, run_subscription

__all__ = ["log"]

pytestmark = pytest.mark.kafka


class SlowClosingSink(CollectingSink):
    async def close(self) -> None:
        await asyncio.sleep(3)
        await super().close()


@pytest.fixture
def slow_seek(monkeypatch: pytest.MonkeyPatch) -> None:
    async def seek(consumer: AIOKafkaConsumer, reached: dict[int, int]) -> Any:
        await asyncio.sleep(3)
        return await seek_to_first_unread(consumer, reached)

    monkeypatch.setattr("streams.kafka.faust_app.seek_to_first_unread", seek)


async def test_slow_seek_keeps_the_assignment(
    log: KafkaLog, kafka_settings: KafkaClientSettings, slow_seek: None
) -> None:
    await append_numbers(log, range(100))
    async with run_subscription(
        FaustSubscriber(kafka_settings, session_timeout_s=6, max_poll_interval_s=2), "g", TOPIC
    ) as reader:
        await eventually(lambda: len(reader.records) == 100)
    assert len(reader.sinks) == 6


async def test_worker_slow_to_close_sinks_rejoins(
    log: KafkaLog, kafka_settings: KafkaClientSettings
) -> None:
    def open_sink(partition: Partition) -> SlowClosingSink:
        sinks.append(SlowClosingSink(partition, auto_acknowledge=True, capacity=None))
        return sinks[-1]

    sinks: list[CollectingSink] = []
    subscriber = FaustSubscriber(kafka_settings, session_timeout_s=6, max_poll_interval_s=2)
    slow = asyncio.create_task(subscriber.subscribe("g", TOPIC, open_sink).run())
    await eventually(lambda: len(sinks) == 6)
    async with run_subscription(subscriber, "g", TOPIC, auto_acknowledge=True) as reader:
        await eventually(lambda: len(reader.open_sinks) == 3)
        await append_numbers(log, range(100))
        await eventually(
            lambda: len(reader.records) + sum(len(sink.received) for sink in sinks) == 100
        )
        assert sum(not sink.closed for sink in sinks) == 3
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)


@pytest.mark.parametrize("refused", [1, 2], ids=["at first", "when another joins"])
async def test_rejected_join_is_retried(
    log: KafkaLog,
    kafka_settings: KafkaClientSettings,
    monkeypatch: pytest.MonkeyPatch,
    refused: int,
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
    async with run_subscription(subscriber, "g", TOPIC, auto_acknowledge=True) as first:
        if refused > 1:
            await eventually(lambda: len(first.open_sinks) == 6)
        async with run_subscription(subscriber, "g", TOPIC, auto_acknowledge=True) as second:
            await eventually(lambda: len(first.open_sinks) == len(second.open_sinks) == 3)
            await append_numbers(log, range(100))
            await eventually(lambda: len(first.records) + len(second.records) == 100)


async def test_client_restarts_when_its_membership_ends(
    log: KafkaLog, kafka_settings: KafkaClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended(coordinator: GroupCoordinator, subscription: Any) -> bool:
        monkeypatch.undo()
        raise asyncio.CancelledError

    monkeypatch.setattr(GroupCoordinator, "_do_rejoin_group", ended)
    await append_numbers(log, range(100))
    async with run_subscription(FaustSubscriber(kafka_settings), "g", TOPIC) as reader:
        await eventually(lambda: len(reader.records) == 100)


async def test_subscription_restarts_when_flow_is_never_resumed(
    log: KafkaLog, kafka_settings: KafkaClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate Faust waiting for a rebalance that does not come."""

    async def unheard(recovery: Recovery, *args: Any) -> None:
        monkeypatch.setattr(Recovery, "on_rebalance", on_rebalance)

    on_rebalance = Recovery.on_rebalance
    monkeypatch.setattr(Recovery, "on_rebalance", unheard)
    monkeypatch.setattr("streams.kafka.faust_app._STALL_TIMEOUT_S", 1.0)
    await append_numbers(log, range(100))
    async with run_subscription(FaustSubscriber(kafka_settings), "g", TOPIC) as reader:
        await eventually(lambda: len(reader.records) == 100)


async def test_records_dropped_in_rebalance_are_refetched_without_committed_offset(
    log: KafkaLog, kafka_settings: KafkaClientSettings
) -> None:
    await append_numbers(log, range(100))
    consumer = AIOKafkaConsumer(
        kafka_settings.topic_prefix + TOPIC,
        **kafka_settings.to_aiokafka_arguments(),
        group_id="g",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        first = await consume_offsets(consumer, 100)
        partition, offsets = next(iter(first.items()))
        await consumer.commit({partition: offsets[4]})
        await seek_to_first_unread(consumer, {})
        assert await consume_offsets(consumer, 96) == first | {partition: offsets[4:]}
    finally:
        await consumer.stop()


async def consume_offsets(consumer: AIOKafkaConsumer, count: int) -> dict[Any, list[int]]:
    """Consume `count` records and return their offsets by partition."""
    found: dict[Any, list[int]] = defaultdict(list)
    async with asyncio.timeout(TIMEOUT_S):
        while sum(map(len, found.values())) < count:
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                found[partition] += [record.offset for record in records]
    return dict(found)
