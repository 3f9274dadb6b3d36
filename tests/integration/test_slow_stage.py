"""A stage that is slow makes lag, not memory: its partition is paused and goes on later, the others are not held up."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from anabranch.background.lag import stage_lags
from anabranch.composition.overrides import Overrides
from anabranch.composition.worker import Worker, prepare_worker
from anabranch.settings import KafkaSettings as KafkaOptions
from anabranch.settings import Settings
from anabranch.stages import stages_named
from engines.embed.null import NullEmbedder
from schemas.events import DocumentChunked
from schemas.ids import content_id, document_id
from schemas.ports.engines import Embedded
from schemas.ports.log import OpenSink, Partition, Sink, Subscriber, Subscription
from schemas.records import Record
from schemas.values import ChildChunk, Origin, ParentChunk
from streams.codec import Codec
from streams.kafka.settings import KafkaSettings
from streams.partition import Bounds, PartitionSink
from streams.partitioning import partition_of
from streams.publisher import own_fact
from streams.topics import CHUNKED, EMBEDDED

pytestmark = pytest.mark.kafka

PARTITIONS = 2
SLOW, QUICK = range(PARTITIONS)
EVENTS = 100
"""Of each partition."""
EVENT_BYTES = 400_000
QUEUE_BYTES = 4_000_000
GROWTH_BYTES = 110_000_000
"""Of this process: 64 MB with such queues, 193 MB with queues without bounds."""
PATIENCE_S = 120


class Gated(NullEmbedder):
    """Answers nothing about texts with the word `slow` before `gate` is open."""

    def __init__(self) -> None:
        super().__init__(dimension=8)
        self.gate = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        if any(text.startswith("slow") for text in texts):
            await self.gate.wait()
        return await super().embed(texts)


@dataclass
class WatchedPartition:
    """The log's side, counting."""

    inner: Partition
    topic: str
    number: int
    resumed: int = 0
    sink: PartitionSink | None = None

    def acknowledge(self, next_offset: int) -> None:
        self.inner.acknowledge(next_offset)

    def resume(self) -> None:
        self.resumed += 1
        self.inner.resume()

    @property
    def kept(self) -> int:
        return self.inner.kept


@dataclass
class Watched:
    """A subscriber that shows the partitions of stage `embed`, and how many bytes each has held at most."""

    inner: Subscriber
    partitions: dict[int, WatchedPartition] = field(default_factory=dict)

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> Subscription:
        if ".embed." not in group:
            return self.inner.subscribe(group, topic, open_sink)

        def opened(partition: Partition) -> Sink:
            watched = self.partitions[partition.number] = WatchedPartition(partition, partition.topic, partition.number)
            sink = open_sink(watched)
            assert isinstance(sink, PartitionSink)
            watched.sink = sink
            return sink

        return self.inner.subscribe(group, topic, opened)


@dataclass(frozen=True)
class Stage:
    """The stage `embed` at work in this process."""

    worker: Worker
    watched: Watched
    embedder: Gated

    @property
    def sinks(self) -> dict[int, PartitionSink]:
        return {number: partition.sink for number, partition in self.watched.partitions.items() if partition.sink}


@asynccontextmanager
async def embedding(settings: KafkaSettings, dsn: str, folder: Path) -> AsyncIterator[Stage]:
    options = KafkaOptions(bootstrap_servers=settings.bootstrap_servers, topic_prefix=settings.topic_prefix, partitions=PARTITIONS)
    embedder = Gated()
    async with prepare_worker(
        Settings(data_dir=folder, kafka=options), dsn, stages=stages_named(["embed", "control"]), overrides=Overrides(embedder=embedder)
    ) as worker:
        hosting = worker.hosting
        watched = Watched(hosting.subscriber)
        hosting.subscriber, hosting.bounds = watched, Bounds(queue_bytes=QUEUE_BYTES)
        yield Stage(worker, watched, embedder)


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def chunked(codec: Codec, number: int, kind: str, partition: int) -> Record:
    """One large part of a document whose events lie in this partition."""
    document = next(
        found for turn in range(1000) if partition_of(str(found := document_id("default", "", f"{kind}-{number}-{turn}")).encode(), PARTITIONS) == partition
    )
    text = f"{kind} {number} " + random.Random(number).randbytes(EVENT_BYTES // 4).hex()
    child = ChildChunk(id=content_id("child", document), ordinal=0, text=text, char_start=0, char_end=len(text), spans=[], tokens=1)
    parent = ParentChunk(id=content_id("parent", document), ordinal=0, text=text, char_start=0, char_end=len(text), tokens=1, children=[child])
    identity = content_id("event", document)
    event = DocumentChunked(
        tenant="default", document_id=document, order=[1, number], part=1, parts=1, parents=[parent],
        origin=Origin(accepted_id=identity, event_id=f"{kind}-{number}", source="test"),
    )  # fmt: skip
    fact = own_fact(event, identity, "test", lambda: datetime(2026, 1, 1, tzinfo=UTC), tenant="default", document_id=document)
    return await codec.encode(fact, CHUNKED, str(document))


async def embedded(worker: Worker) -> set[UUID]:
    codec = worker.storage.codec
    return {(await codec.decode(stored)).data.document_id async for stored in worker.storage.log.read(EMBEDDED)}


def resident() -> int:
    """Bytes of this process in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Highest:
    """What was the most so far, of bytes in a partition's queue and of growth of this process."""

    stage: Stage
    resident_before: int = field(default_factory=resident)
    queued: int = 0
    grown: int = 0

    def look(self) -> None:
        self.queued = max([self.queued, *(sink.bytes for sink in self.stage.sinks.values())])
        self.grown = max(self.grown, resident() - self.resident_before)


async def test_a_slow_partition_is_paused_holds_few_bytes_and_loses_nothing(kafka_settings: KafkaSettings, database: str, tmp_path: Path) -> None:
    async with embedding(kafka_settings, database, tmp_path) as stage:
        codec = stage.worker.storage.codec
        slow = [await chunked(codec, number, "slow", SLOW) for number in range(EVENTS)]
        quick = [await chunked(codec, number, "quick", QUICK) for number in range(EVENTS)]
        log, highest = stage.worker.storage.log, Highest(stage)

        async def have_embedded(count: int) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while sum(after_last for _, after_last in (await log.ends(EMBEDDED)).values()) < count:
                    highest.look()
                    await asyncio.sleep(0.05)

        await log.append([*slow, *quick])
        async with running(stage.worker):
            await have_embedded(EVENTS)
            assert stage.sinks[SLOW].paused, "it has more to do than it may hold"
            assert stage.watched.partitions[SLOW].resumed == 0
            stage.embedder.gate.set()
            await have_embedded(2 * EVENTS)
            async with asyncio.timeout(PATIENCE_S):
                while (lag := {line["stage"]: line for line in await stage_lags(stage.worker.storage)}["embed"])["lag"]:
                    await asyncio.sleep(0.05)
            assert (lag["acknowledged"], lag["end"]) == (2 * EVENTS, 2 * EVENTS), "both partitions together"
        assert stage.watched.partitions[SLOW].resumed > 0
        assert {str(document).encode() for document in await embedded(stage.worker)} == {record.key for record in (*slow, *quick)}
    waiting = sum(len(record.value or b"") for record in slow)
    assert highest.queued < 2 * QUEUE_BYTES < waiting // 4, "no more than what makes it full, and what one fetch brings"
    assert highest.grown < GROWTH_BYTES
