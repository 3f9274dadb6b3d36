"""Workers of a group on real Kafka that join, hand over, are refused or forgotten: each goes on, and nothing is lost."""

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
from streams.kafka.app import seek_to_unread
from streams.kafka.log import KafkaLog, KafkaSettings
from streams.kafka.worker import FaustSubscriber
from tests.contract.logs import PATIENCE_S, Collector, reading, until
from tests.integration.kafka_numbers import TOPIC, append, log

__all__ = ["log"]

pytestmark = pytest.mark.kafka


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


async def test_a_worker_that_finds_its_place_slowly_keeps_it(log: KafkaLog, kafka_settings: KafkaSettings, slow_seek: None) -> None:
    await append(log, range(100))
    async with reading(FaustSubscriber(kafka_settings, session_timeout_s=6, max_poll_interval_s=2), "g", TOPIC) as reader:
        await until(lambda: len(reader.records) == 100)
    assert len(reader.sinks) == 6


async def test_a_worker_that_takes_its_time_to_hand_over_joins_again(log: KafkaLog, kafka_settings: KafkaSettings) -> None:
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
    log: KafkaLog, kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch, refused: int
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


async def test_a_client_whose_membership_ended_begins_again(log: KafkaLog, kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ended(coordinator: GroupCoordinator, subscription: Any) -> bool:
        monkeypatch.undo()
        raise asyncio.CancelledError

    monkeypatch.setattr(GroupCoordinator, "_do_rejoin_group", ended)
    await append(log, range(100))
    async with reading(FaustSubscriber(kafka_settings), "g", TOPIC) as reader:
        await until(lambda: len(reader.records) == 100)


async def test_a_reader_whose_flow_nobody_resumes_begins_again(log: KafkaLog, kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
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
    log: KafkaLog, kafka_settings: KafkaSettings
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
