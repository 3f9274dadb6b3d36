"""A worker as a process of its own, with a trivial sink: it notes each record's number in a file and acknowledges in order."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.process.stopping import leave, until_stopped
from schemas.ports.log import Partition
from schemas.records import StoredRecord
from streams.kafka.settings import KafkaSettings
from streams.kafka.worker import FaustSubscriber

WORK_S = 0.002
ROOM = 50


class NotingSink:
    """Works on one record at a time, and is full while it has more than ROOM of them."""

    def __init__(self, partition: Partition, notes: int) -> None:
        self._partition = partition
        self._notes = notes
        self._queue: deque[StoredRecord] = deque()
        self._arrived = asyncio.Event()
        self._working = asyncio.create_task(self._work())

    def offer(self, record: StoredRecord) -> None:
        self._queue.append(record)
        self._arrived.set()

    @property
    def full(self) -> bool:
        return len(self._queue) > ROOM

    async def close(self) -> None:
        self._working.cancel()
        await asyncio.wait({self._working})

    async def _work(self) -> None:
        while True:
            while self._queue:
                await asyncio.sleep(WORK_S)
                record = self._queue.popleft()
                os.write(self._notes, (record.record.value or b"") + b"\n")
                self._partition.acknowledge(record.position.offset + 1)
                if not self.full:
                    self._partition.resume()
            self._arrived.clear()
            await self._arrived.wait()


@dataclass(frozen=True)
class Orders:
    settings: KafkaSettings
    notes: str
    topics: Sequence[str]


def run(orders: Orders) -> None:
    """In a process of its own, until told to stop."""
    leave(asyncio.run(until_stopped(_work(orders))))


async def _work(orders: Orders) -> None:
    notes = os.open(orders.notes, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    subscriber = FaustSubscriber(orders.settings, session_timeout_s=6)
    async with asyncio.TaskGroup() as tasks:
        for topic in orders.topics:
            tasks.create_task(subscriber.subscribe(f"stage-{topic}", topic, lambda partition: NotingSink(partition, notes)).run())
