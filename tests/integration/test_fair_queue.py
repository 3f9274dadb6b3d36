"""A one-page upload is searchable before a 1,000-page document in the same partition.

Tests use gates instead of clocks: a slow engine waits until the test opens its gate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anabranch.composition.worker import prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import KafkaSettings as KafkaOptions
from anabranch.config.settings import Settings
from benchmarks.null_engines import NullExtractor
from schemas.events import Content, DocumentIndexed, DocumentReceived
from schemas.ports.engines import LocalFile, ParsePlan, TextEmbedding
from schemas.topics import CHUNKED, OUTCOMES
from schemas.values import Transcript
from services.storage import Storage
from streams.codec import Codec
from streams.kafka.client import KafkaClientSettings
from streams.publisher import build_raw_record
from tests.fakes.null_embedder import NullEmbedder
from tests.support.eventually import eventually
from tests.support.simulated_pipeline import LineChunker, LineParser

PAGES, PAGES_OF_A_PART, LINES_OF_A_PAGE = 1000, 16, 4
LONG_DOCUMENT = "a long scan"
TIMEOUT_S = 120


class PageParser(LineParser):
    """Generate the pages of the long document; `may_end` gates the last range."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def plan(self, file: LocalFile) -> ParsePlan:
        if not file.path.read_text().startswith(LONG_DOCUMENT):
            return await super().plan(file)
        return ParsePlan(
            "text/plain",
            tuple(f"pages from {first}" for first in range(0, PAGES, PAGES_OF_A_PART)),
            PAGES,
        )

    async def parse(self, file: LocalFile, plan: ParsePlan, part: str) -> bytes:
        if plan.pages is None:
            return await super().parse(file, plan, part)
        if part == plan.parts[-1]:
            await self.may_end.wait()
        lines = [
            f"{LONG_DOCUMENT}, {part}, line {number}: " + "heron " * 80
            for number in range(PAGES_OF_A_PART * LINES_OF_A_PAGE)
        ]
        return "\n".join(lines).encode() + b"\n"

    def assemble(self, file: LocalFile, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        return super().assemble(file, plan, [b"".join(parts)])


class GatedEmbedder(NullEmbedder):
    """Start with the long document and block on it until `may_go_on` is set."""

    def __init__(self) -> None:
        super().__init__(dimension=8)
        self.begun, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        if any(LONG_DOCUMENT in text for text in texts):
            self.begun.set()
            await self.may_go_on.wait()
        return await super().embed(texts)


@dataclass(frozen=True)
class FairQueueEnvironment:
    storage: Storage
    parser: PageParser
    embedder: GatedEmbedder

    async def push_document(self, name: str, text: str) -> None:
        event = DocumentReceived(external_id=name, content=Content(text=text))
        await self.storage.log.append(
            [
                await build_raw_record(
                    event, name, time=datetime(2026, 1, 1, tzinfo=UTC), codec=self.storage.codec
                )
            ]
        )

    async def wait_for_searchable(self, count: int) -> list[str]:
        """Wait for `count` searchable documents; return their names in the order of indexing."""
        return await eventually(self._fetch_indexed_names, lambda names: len(names) >= count)

    async def _fetch_indexed_names(self) -> list[str]:
        names = []
        async for stored in self.storage.log.read(OUTCOMES):
            data = (await Codec().decode(stored)).data
            assert isinstance(data, DocumentIndexed), data
            names.append(data.external_id or "")
        return names

    async def wait_for_long_parts(self, count: int) -> None:
        """Wait until the log holds `count` parts of the document `long`."""
        codec = self.storage.codec

        async def count_parts() -> int:
            events = [await codec.decode(one) async for one in self.storage.log.read(CHUNKED)]
            return sum(event.data.origin.external_id == "long" for event in events)

        await eventually(count_parts, lambda parts: parts >= count)


@asynccontextmanager
async def run_worker(settings: Settings, dsn: str) -> AsyncIterator[FairQueueEnvironment]:
    parser, embedder = PageParser(), GatedEmbedder()
    overrides = Overrides(
        parser=parser, chunker=LineChunker(), embedder=embedder, extractor=NullExtractor()
    )
    async with prepare_worker(settings, dsn, overrides=overrides) as worker:
        running = asyncio.create_task(worker.run())
        try:
            yield FairQueueEnvironment(worker.storage, parser, embedder)
            assert not running.done(), running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(
    params=["postgres", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.long])]
)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Return settings of a log with one partition per topic."""
    if request.param == "postgres":
        return Settings(data_dir=tmp_path)
    kafka: KafkaClientSettings = request.getfixturevalue("kafka_settings")
    return Settings(
        data_dir=tmp_path,
        kafka=KafkaOptions(
            bootstrap_servers=kafka.bootstrap_servers, topic_prefix=kafka.topic_prefix, partitions=1
        ),
    )


async def test_short_document_is_searchable_before_earlier_long_one(
    settings: Settings, database: str
) -> None:
    async with run_worker(settings, database) as world:
        await world.push_document("long", LONG_DOCUMENT)
        await world.push_document("while it is read", "One page.")
        assert await world.wait_for_searchable(1) == ["while it is read"]
        world.parser.may_end.set()
        await asyncio.wait_for(world.embedder.begun.wait(), TIMEOUT_S)
        await world.wait_for_long_parts(PAGES * LINES_OF_A_PAGE // 64)
        await world.push_document("while it is embedded", "Another page.")
        assert await world.wait_for_searchable(2) == ["while it is read", "while it is embedded"]
        world.embedder.may_go_on.set()
        assert (await world.wait_for_searchable(3))[-1] == "long"
