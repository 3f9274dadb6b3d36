"""A worker as a process of its own, with a trivial sink: it notes each record's number in a file and acknowledges in order."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque

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


async def main(bootstrap_servers: str, prefix: str, notes_file: str, *topics: str) -> None:
    notes = os.open(notes_file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    subscriber = FaustSubscriber(KafkaSettings(bootstrap_servers, topic_prefix=prefix), session_timeout_s=6)
    async with asyncio.TaskGroup() as tasks:
        for topic in topics:
            tasks.create_task(subscriber.subscribe(f"stage-{topic}", topic, lambda partition: NotingSink(partition, notes)).run())


if __name__ == "__main__":
    leave(asyncio.run(until_stopped(main(*sys.argv[1:]))))
