"""A slow stage accumulates lag instead of memory: only its partition is paused."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from anabranch.composition.worker import Worker, prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import KafkaSettings as KafkaOptions
from anabranch.config.settings import Settings
from anabranch.process.ingress_settings import select_stages
from schemas.events import DocumentChunked, build_root_event
from schemas.ids import content_id, make_document_id
from schemas.ports.engines import TextEmbedding
from schemas.ports.log import OpenSink, Partition, Sink, Subscriber, Subscription
from schemas.topics import CHUNKED, EMBEDDED, Record
from schemas.values import ChildChunk, Origin, ParentChunk
from services.monitoring.lag_diagnosis import fetch_stage_lags
from streams.codec import Codec
from streams.kafka.client import KafkaClientSettings
from streams.partition_sink import PartitionLimits, PartitionSink
from tests.fakes.memory_log import choose_partition
from tests.fakes.null_embedder import NullEmbedder
from tests.support.eventually import eventually

pytestmark = pytest.mark.kafka

PARTITIONS = 2
SLOW, QUICK = range(PARTITIONS)
EVENTS_PER_PARTITION = 50
"""Of each partition."""
EVENT_BYTES = 400_000
QUEUE_BYTES = 2_000_000
MAX_GROWTH_BYTES = 90_000_000
"""Growth of the memory of this process: 49 MB with such queues, 157 MB with unbounded ones."""


class BlockingEmbedder(NullEmbedder):
    """Block on texts with the word `slow` until `gate` is open."""

    def __init__(self) -> None:
        super().__init__(dimension=8)
        self.gate = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        if any(text.startswith("slow") for text in texts):
            await self.gate.wait()
        return await super().embed(texts)


@dataclass
class ObservedPartition:
    """A partition that counts its calls."""

    inner: Partition
    topic: str
    number: int
    n_resumed: int = 0
    sink: PartitionSink | None = None

    def acknowledge(self, next_offset: int) -> None:
        self.inner.acknowledge(next_offset)

    def resume(self) -> None:
        self.n_resumed += 1
        self.inner.resume()

    @property
    def committed_offset(self) -> int:
        return self.inner.committed_offset


@dataclass
class ObservedSubscriber:
    """A subscriber that exposes the partitions of stage `embed` and their peak bytes."""

    inner: Subscriber
    partitions: dict[int, ObservedPartition] = field(default_factory=dict)

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> Subscription:
        if ".embed." not in group:
            return self.inner.subscribe(group, topic, open_sink)

        def opened(partition: Partition) -> Sink:
            watched = self.partitions[partition.number] = ObservedPartition(
                partition, partition.topic, partition.number
            )
            sink = open_sink(watched)
            assert isinstance(sink, PartitionSink)
            watched.sink = sink
            return sink

        return self.inner.subscribe(group, topic, opened)


@dataclass(frozen=True)
class EmbedStageRun:
    """The stage `embed`, running in this process."""

    worker: Worker
    subscriber: ObservedSubscriber
    embedder: BlockingEmbedder

    @property
    def sinks(self) -> dict[int, PartitionSink]:
        return {
            number: partition.sink
            for number, partition in self.subscriber.partitions.items()
            if partition.sink
        }


@asynccontextmanager
async def prepare_embed_stage(
    settings: KafkaClientSettings, dsn: str, folder: Path
) -> AsyncIterator[EmbedStageRun]:
    options = KafkaOptions(
        bootstrap_servers=settings.bootstrap_servers,
        topic_prefix=settings.topic_prefix,
        partitions=PARTITIONS,
    )
    embedder = BlockingEmbedder()
    async with prepare_worker(
        Settings(data_dir=folder, kafka=options),
        dsn,
        stages=select_stages(["embed", "control"]),
        overrides=Overrides(embedder=embedder),
    ) as worker:
        hosting = worker.consumers
        watched = ObservedSubscriber(hosting.subscriber)
        hosting.subscriber, hosting.bounds = watched, PartitionLimits(queue_bytes=QUEUE_BYTES)
        yield EmbedStageRun(worker, watched, embedder)


@asynccontextmanager
async def run_in_background(worker: Worker) -> AsyncIterator[None]:
    task = asyncio.create_task(worker.run())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def make_chunked_record(codec: Codec, number: int, kind: str, partition: int) -> Record:
    """Make one large part of a document whose key belongs to the partition."""
    document = next(
        found
        for turn in range(1000)
        if choose_partition(
            str(found := make_document_id("default", "", f"{kind}-{number}-{turn}")).encode(),
            PARTITIONS,
        )
        == partition
    )
    text = f"{kind} {number} " + random.Random(number).randbytes(EVENT_BYTES // 4).hex()
    child = ChildChunk(
        id=content_id("child", document),
        ordinal=0,
        text=text,
        char_start=0,
        char_end=len(text),
        spans=[],
        tokens=1,
    )
    parent = ParentChunk(
        id=content_id("parent", document),
        ordinal=0,
        text=text,
        char_start=0,
        char_end=len(text),
        tokens=1,
        children=[child],
    )
    identity = content_id("event", document)
    event = DocumentChunked(
        tenant="default",
        document_id=document,
        order=[1, number],
        part=1,
        parts=1,
        parents=[parent],
        origin=Origin(accepted_id=identity, event_id=f"{kind}-{number}", source="test"),
    )
    fact = build_root_event(
        event,
        identity,
        "test",
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
        tenant="default",
        document_id=document,
    )
    return await codec.encode(fact, CHUNKED, str(document))


async def read_embedded_ids(worker: Worker) -> set[UUID]:
    codec = worker.storage.codec
    return {
        (await codec.decode(stored)).data.document_id
        async for stored in worker.storage.log.read(EMBEDDED)
    }


def read_resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class PeakMemory:
    """Peak of the queued bytes of a partition and of the growth of this process."""

    stage: EmbedStageRun
    initial_resident_bytes: int = field(default_factory=read_resident_bytes)
    peak_queued_bytes: int = 0
    peak_growth_bytes: int = 0

    def sample(self) -> None:
        self.peak_queued_bytes = max(
            [self.peak_queued_bytes, *(sink.buffered_bytes for sink in self.stage.sinks.values())]
        )
        self.peak_growth_bytes = max(
            self.peak_growth_bytes, read_resident_bytes() - self.initial_resident_bytes
        )


async def test_slow_partition_is_paused_bounded_and_loses_nothing(
    kafka_settings: KafkaClientSettings, database: str, tmp_path: Path
) -> None:
    async with prepare_embed_stage(kafka_settings, database, tmp_path) as stage:
        codec = stage.worker.storage.codec
        slow = [
            await make_chunked_record(codec, number, "slow", SLOW)
            for number in range(EVENTS_PER_PARTITION)
        ]
        quick = [
            await make_chunked_record(codec, number, "quick", QUICK)
            for number in range(EVENTS_PER_PARTITION)
        ]
        log, highest = stage.worker.storage.log, PeakMemory(stage)

        async def count_embedded() -> int:
            highest.sample()
            bounds = await log.fetch_offset_bounds(EMBEDDED)
            return sum(after_last for _, after_last in bounds.values())

        async def wait_for_embedded(count: int) -> None:
            await eventually(count_embedded, lambda embedded: embedded >= count)

        async def fetch_embed_lag() -> dict[str, Any]:
            lines = await fetch_stage_lags(stage.worker.storage)
            return next(line for line in lines if line["stage"] == "embed")

        await log.append([*slow, *quick])
        async with run_in_background(stage.worker):
            await wait_for_embedded(EVENTS_PER_PARTITION)
            assert stage.sinks[SLOW].is_paused, "it has more to do than it may hold"
            assert stage.subscriber.partitions[SLOW].n_resumed == 0
            stage.embedder.gate.set()
            await wait_for_embedded(2 * EVENTS_PER_PARTITION)
            lag = await eventually(fetch_embed_lag, lambda line: not line["lag"])
            assert (lag["acknowledged"], lag["end"]) == (
                2 * EVENTS_PER_PARTITION,
                2 * EVENTS_PER_PARTITION,
            ), "both partitions together"
        assert stage.subscriber.partitions[SLOW].n_resumed > 0
        assert {str(document).encode() for document in await read_embedded_ids(stage.worker)} == {
            record.key for record in (*slow, *quick)
        }
    waiting = sum(len(record.value or b"") for record in slow)
    assert highest.peak_queued_bytes < 2 * QUEUE_BYTES < waiting // 4, (
        "no more than what makes it full, and what one fetch brings"
    )
    assert highest.peak_growth_bytes < MAX_GROWTH_BYTES
