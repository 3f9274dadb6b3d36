"""A worker process whose sink records numbers in a file and acknowledges in order."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from dataclasses import dataclass

from anabranch.process.shutdown import exit_process, run_until_stopped
from schemas.ports.log import Partition
from schemas.topics import StoredRecord
from streams.kafka.client import KafkaClientSettings
from streams.kafka.subscriber import FaustSubscriber

WORK_S = 0.002
CAPACITY = 50


class RecordingSink:
    """Process one record at a time; full while more than ROOM are queued."""

    def __init__(self, partition: Partition, notes: int) -> None:
        self._partition = partition
        self._notes = notes
        self._queue: deque[StoredRecord] = deque()
        self._arrived = asyncio.Event()
        self._task = asyncio.create_task(self._process_records())

    def offer(self, record: StoredRecord) -> None:
        self._queue.append(record)
        self._arrived.set()

    @property
    def is_full(self) -> bool:
        return len(self._queue) > CAPACITY

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _process_records(self) -> None:
        while True:
            while self._queue:
                await asyncio.sleep(WORK_S)
                record = self._queue.popleft()
                os.write(self._notes, (record.record.value or b"") + b"\n")
                self._partition.acknowledge(record.position.offset + 1)
                if not self.is_full:
                    self._partition.resume()
            self._arrived.clear()
            await self._arrived.wait()


@dataclass(frozen=True)
class KafkaWorkerOrders:
    settings: KafkaClientSettings
    notes: str
    topic: str


def run_kafka_worker(orders: KafkaWorkerOrders) -> None:
    """Run in a separate process until stopped."""
    exit_process(asyncio.run(run_until_stopped(_run_subscription(orders))))


async def _run_subscription(orders: KafkaWorkerOrders) -> None:
    notes = os.open(orders.notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    subscriber = FaustSubscriber(orders.settings, session_timeout_s=6)
    await subscriber.subscribe(
        "g", orders.topic, lambda partition: RecordingSink(partition, notes)
    ).run()
