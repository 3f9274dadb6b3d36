"""A whole pipeline in memory that can be killed between any two awaits, and the same log folded without any trouble, to compare with."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from processors import STAGES, versions
from schemas.errors import EngineUnavailable, UnreadableDocument
from schemas.events import DocumentAmended, DocumentReceived, DocumentWithdrawn, GenerationCreated
from schemas.generations import EmbedConfig, Generation, IndexConfig, chain_fingerprints
from schemas.ids import content_id, sha256_hex
from schemas.ports.bundle import ANY, Latest, LatestRevisions, Limits, Ports
from schemas.ports.engines import Embedded, EmbeddedQuery, File, ParsePlan
from schemas.ports.ledger import Ledger
from schemas.records import Position, Record, StoredRecord
from schemas.values import BlobRef, Block, ChildChunk, Extraction, ParentChunk, Span, Transcript
from streams.codec import Codec
from streams.memory_ledger import MemoryLedger, MemoryMemo
from streams.observe import Silent
from streams.partition import Bounds, PartitionSink
from streams.publisher import Publisher, own_fact
from streams.runner import Patience, Runner
from streams.stage import Stage
from streams.submission import submission

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = IndexConfig(embed=EmbedConfig(dimension=4, state_dimension=0))
GENERATION = Generation(name="g1", config=CONFIG, how=chain_fingerprints(CONFIG, versions()), topics={}, state="live")


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Tripwire:
    """Kills the worker at the n-th crossing; counts on across restarts."""

    deaths: list[int]
    crossings: int = 0

    def cross(self) -> None:
        self.crossings += 1
        if self.deaths and self.crossings >= self.deaths[0]:
            self.deaths.pop(0)
            raise Killed


@dataclass
class ListLog:
    wire: Tripwire
    topics: dict[str, list[StoredRecord]] = field(default_factory=dict)

    async def append(self, records: Sequence[Record]) -> list[Position]:
        self.wire.cross()
        positions = [self.keep(record) for record in records]
        await asyncio.sleep(0)
        self.wire.cross()
        return positions

    def keep(self, record: Record) -> Position:
        held = self.topics.setdefault(record.topic, [])
        position = Position(record.topic, 0, len(held))
        held.append(StoredRecord(record, position, EPOCH + timedelta(milliseconds=len(held))))
        return position


@dataclass
class FragileLedger:
    inner: Ledger
    wire: Tripwire
    generation: Generation = GENERATION

    async def claim(self, *given: Any) -> Any:
        self.wire.cross()
        answer = await self.inner.claim(*given)
        self.wire.cross()
        return answer

    async def begin(self, *given: Any) -> None:
        self.wire.cross()
        await self.inner.begin(*given)

    async def release(self, *given: Any) -> None:
        await self.inner.release(*given)

    async def settle(self, *given: Any) -> None:
        self.wire.cross()
        await self.inner.settle(*given)
        self.wire.cross()

    async def prune(self, *given: Any) -> None:
        await self.inner.prune(*given)


class MoodyEmbedder:
    """Never says the same twice, and is away now and then: the memo must make up for it."""

    fingerprint, model, dimension, state_dimension = "moody", "moody", 4, 0

    def __init__(self, wire: Tripwire, mood: random.Random) -> None:
        self.wire, self.mood, self.asked, self.sulks = wire, mood, 0, 0
        self.moody = True

    async def embed(self, texts: Sequence[str]) -> list[Embedded]:
        self.wire.cross()
        self.sulks = self.sulks + 1 if self.mood.random() < 0.2 and self.sulks < 3 else 0
        if self.sulks:
            raise EngineUnavailable("the engine has gone for coffee")
        await asyncio.sleep(0)
        if any("poison" in text for text in texts):
            raise UnreadableDocument("poison", code="POISON")
        self.asked += len(texts)
        return [Embedded(np.array([self._say(text) for _ in range(4)], dtype=np.float16)) for text in texts]

    def _say(self, text: str) -> float:
        return self.mood.random() if self.moody else float(len(text))

    async def embed_query(self, text: str) -> EmbeddedQuery:
        raise AssertionError("nobody asks here")


class LineParser:
    """A line is a block."""

    fingerprint = "lines"

    async def plan(self, file: File) -> ParsePlan:
        if b"locked" in file.path.read_bytes():
            raise UnreadableDocument("locked", code="ENCRYPTED_DOCUMENT")
        return ParsePlan("text/plain", ("all",), None)

    async def parse(self, file: File, plan: ParsePlan, part: str) -> bytes:
        await asyncio.sleep(0)
        return file.path.read_bytes()

    def assemble(self, file: File, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        text, blocks, at = parts[0].decode(), [], 0
        for line in text.splitlines(keepends=True):
            if line.strip():
                blocks.append(Block(kind="paragraph", span=Span(char_start=at, char_end=at + len(line.rstrip("\n")))))
            at += len(line)
        return Transcript(markdown=text, blocks=blocks)


class LineChunker:
    fingerprint = "lines"

    def chunk(self, document_id: UUID, title: str | None, transcript: Transcript) -> list[ParentChunk]:
        parents = []
        for number, block in enumerate(transcript.blocks):
            start, end = block.span.char_start, block.span.char_end
            text = transcript.markdown[start:end]
            child = ChildChunk(
                id=content_id("chunk", document_id, text, number),
                ordinal=number,
                text=text,
                char_start=start,
                char_end=end,
                spans=[block.span],
                tokens=len(text.split()),
            )
            parents.append(
                ParentChunk(
                    id=content_id("parent", document_id, text, number),
                    ordinal=number,
                    text=text,
                    char_start=start,
                    char_end=end,
                    tokens=child.tokens,
                    children=[child],
                )
            )
        return parents


class NoExtractor:
    fingerprint = "none"

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        return Extraction()


@dataclass
class MemoryOwners:
    sources: dict[tuple[str, UUID], str] = field(default_factory=dict)

    async def owner(self, tenant: str, document_id: UUID) -> str | None:
        return self.sources.get((tenant, document_id))

    async def own(self, tenant: str, document_id: UUID, source: str, allowed: Collection[str]) -> str:
        owner = self.sources.get((tenant, document_id))
        if owner is None or owner in allowed or ANY in allowed:
            self.sources[tenant, document_id] = source
        return self.sources[tenant, document_id]


class FolderBlobs:
    """As much of the blob port as the stages need, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, key: str) -> Path:
        return self.folder / key.replace("/", "__")

    async def put(self, key: str, data: bytes, *, media_type: str | None = None) -> BlobRef:
        self._path(key).write_bytes(data)
        return BlobRef(key=key, sha256=sha256_hex(data), size=len(data))

    async def get(self, key: str) -> bytes:
        return self._path(key).read_bytes()

    async def size(self, key: str) -> int | None:
        return self._path(key).stat().st_size if self._path(key).exists() else None

    async def copy(self, source: str, target: str) -> None:
        self._path(target).write_bytes(self._path(source).read_bytes())

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._path(key).unlink(missing_ok=True)

    def local(self, key: str) -> Any:
        path = self._path(key)

        class Here:
            async def __aenter__(self) -> Path:
                return path

            async def __aexit__(self, *error: object) -> None:
                return None

        return Here()


@dataclass
class World:
    """`deaths` are the crossings at which the worker dies; `repeats` are how often each delivery is made."""

    folder: Path
    deaths: list[int]
    seed: int
    bounds: Bounds
    repeats: int = 1
    tables_ledger: Ledger | None = None
    """In place of the one in memory."""
    revisions: LatestRevisions | None = None

    def __post_init__(self) -> None:
        self.wire = Tripwire([])
        self.mood = random.Random(self.seed)
        self.log = ListLog(self.wire)
        self.memory = MemoryLedger(GENERATION)
        self.ledger = FragileLedger(self.tables_ledger or self.memory, self.wire)
        self.embedder = MoodyEmbedder(self.wire, self.mood)
        self.codec = Codec()
        blobs: Any = FolderBlobs(self.folder)
        unused: Any = None
        self.ports = Ports(
            generation=GENERATION, blobs=blobs, memo=MemoryMemo(), fetcher=unused, parser=LineParser(), chunker=LineChunker(), extractor=NoExtractor(), embedder=self.embedder,
            languages=_NoLanguage(), revisions=self.revisions or self, limits=Limits(), stamp=lambda position, _: [1, position.offset],
            owners=MemoryOwners(),
        )  # fmt: skip

    async def latest(self, tenant: str, document_id: UUID) -> Latest | None:
        state = self.memory.documents.get(document_id)
        return Latest(False, None, state.latest) if state else None

    async def push(self, event: DocumentReceived | DocumentAmended | DocumentWithdrawn, event_id: str) -> None:
        self.log.keep(await submission(event, event_id, source="test", time=EPOCH, codec=self.codec))

    async def create_generation(self) -> None:
        """As whoever finds none does."""
        fact = own_fact(GenerationCreated(generation=GENERATION), content_id("genesis"), "test", lambda: EPOCH)
        self.log.keep(await self.codec.encode(fact, "control", "g1"))
        await self._drain(next(stage for stage in STAGES if stage.name == "control"))

    async def run(self) -> None:
        """Every stage until nothing is left to do, dying and starting again on the way."""
        self.wire.deaths = sorted(self.deaths)
        for stage in STAGES:
            await self._drain(stage)

    async def _drain(self, stage: Stage) -> None:
        acknowledged = 0
        while acknowledged < len(self.log.topics.get(stage.topic, [])):
            acknowledged = await self._live(stage, acknowledged)

    async def _live(self, stage: Stage, start: int) -> int:
        """One life of a worker: from `start` until all is acknowledged, or until it dies. Returns where the next life starts."""
        records = self.log.topics[stage.topic]
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        partition = _Partition(stage.topic, len(records), start, over)
        publisher = Publisher(stage.name, GENERATION, self.codec, lambda: EPOCH)
        runner = Runner(stage, self.ledger, self.log, self.ports, publisher, self.codec, Silent(), patience=Patience(0, 0))  # type: ignore[arg-type]
        sink = PartitionSink(runner, partition, lambda error: over.set_exception(error) if not over.done() else None, self.bounds)
        for record in records[start:]:
            for _ in range(self.repeats):
                sink.offer(record)
        try:
            await over
        except Killed:
            pass
        finally:
            await sink.close()
        return partition.acknowledged

    def outcomes(self) -> dict[str, list[str]]:
        """Producer's event id → the different outcomes said of it."""
        said: dict[str, dict[str, str]] = {}
        for stored in self.log.topics.get("outcomes", []):
            event = json.loads(stored.record.value or b"{}").get("event_id", "?")
            said.setdefault(event, {})[stored.record.headers["ce_id"].decode()] = stored.record.headers["ce_type"].decode()
        return {event: list(kinds.values()) for event, kinds in said.items()}

    def tables(self) -> dict[str, Any]:
        """What a reader sees: visible texts, and what was withdrawn."""
        texts: dict[str, list[str]] = {}
        for key, row in self.memory.rows.items():
            shown = self.memory.visible.get(key[1])
            if key[0] == "ChildRow" and shown is not None and shown.order == key[2]:
                texts.setdefault(str(key[1]), []).append(row.text)  # type: ignore[union-attr]
        vectors = sum(
            1 for key in self.memory.rows if key[0] == "VectorRow" and self.memory.visible.get(key[1]) and self.memory.visible[key[1]].order == key[2]
        )
        return {
            "texts": {document: sorted(found) for document, found in texts.items()},
            "vectors": vectors,
            "visible": {str(document): shown.order for document, shown in self.memory.visible.items()},
            "withdrawn": {str(document): state.withdrawn for document, state in self.memory.documents.items() if state.withdrawn},
            "buried": sorted((stage, event.code) for (stage, _), event in self.memory.buried.items()),
        }


@dataclass
class _Partition:
    topic: str
    records: int
    acknowledged: int
    over: asyncio.Future[None]
    number: int = 0

    def acknowledge(self, next_offset: int) -> None:
        assert next_offset >= self.acknowledged, "acknowledgements go forward"
        self.acknowledged = next_offset
        if next_offset >= self.records and not self.over.done():
            self.over.set_result(None)

    def resume(self) -> None: ...

    @property
    def kept(self) -> int:
        return self.acknowledged


class _NoLanguage:
    def detect(self, text: str) -> str | None:
        return None
