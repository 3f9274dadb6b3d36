"""An in-memory pipeline that can crash at any await, and a fault-free reference run."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import numpy as np

from processors import EVENT_CLASSES, STAGES, get_stage_versions
from schemas.errors import EngineUnavailable, UnreadableDocument
from schemas.events import (
    DocumentAmended,
    DocumentReceived,
    DocumentWithdrawn,
    GenerationCreated,
    build_root_event,
)
from schemas.generations import (
    EmbedConfig,
    EntitySchema,
    Generation,
    IndexConfig,
    compute_chain_fingerprints,
)
from schemas.ids import content_id, sha256_hex
from schemas.ports.engines import Extractor, LocalFile, ParsePlan, QueryEmbedding, TextEmbedding
from schemas.ports.ledger import Ledger
from schemas.ports.stage_ports import (
    ANY_SOURCE,
    Admission,
    DocumentOwners,
    IngressLimits,
    LatestRevision,
    LatestRevisions,
    StagePorts,
)
from schemas.topics import Position, Record, StoredRecord
from schemas.values import BlobRef, Block, ChildChunk, Extraction, ParentChunk, Span, Transcript
from sql.inbox.ledger import PgLedger
from streams.chained_records import ChainedRecords
from streams.codec import Codec
from streams.partition_sink import PartitionLimits, PartitionSink
from streams.publisher import Publisher, build_raw_record
from streams.retry import Backoff
from streams.runner import StageRunner
from streams.stage import Instrumentation, Stage
from streams.stage_chain import ChainedRunner, ChainLink, StageChain
from tests.fakes.memory_ledger import MemoryLedger, MemoryMemo

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = IndexConfig(embed=EmbedConfig(dimension=4, state_dimension=0))
GENERATION = Generation(
    name="g1",
    config=CONFIG,
    how=compute_chain_fingerprints(CONFIG, get_stage_versions()),
    topics={},
    state="live",
)


class SimulatedCrash(BaseException):
    """A simulated end of the worker process."""


@dataclass
class CrashInjector:
    """Crash the worker at the n-th crossing, counted across restarts."""

    crash_points: list[int]
    n_steps: int = 0
    end_process: Callable[[SimulatedCrash], None] = lambda _: None
    """Called because a crash of a task that others wait for may not reach the sink."""

    def step(self) -> None:
        self.n_steps += 1
        if self.crash_points and self.n_steps >= self.crash_points[0]:
            self.crash_points.pop(0)
            crash = SimulatedCrash()
            self.end_process(crash)
            raise crash


@dataclass
class ListLog:
    crash_injector: CrashInjector
    topics: dict[str, list[StoredRecord]] = field(default_factory=dict)

    async def append(self, records: Sequence[Record]) -> list[Position]:
        self.crash_injector.step()
        positions = [self.store(record) for record in records]
        await asyncio.sleep(0)
        self.crash_injector.step()
        return positions

    def store(self, record: Record) -> Position:
        records = self.topics.setdefault(record.topic, [])
        position = Position(record.topic, 0, len(records))
        records.append(StoredRecord(record, position, EPOCH + timedelta(milliseconds=len(records))))
        return position


@dataclass
class CrashingLedger:
    inner: Ledger
    crash_injector: CrashInjector
    generation: Generation = GENERATION

    async def claim(self, *given: Any) -> Any:
        self.crash_injector.step()
        answer = await self.inner.claim(*given)
        self.crash_injector.step()
        return answer

    async def record_attempt(self, *given: Any) -> None:
        self.crash_injector.step()
        await self.inner.record_attempt(*given)

    async def withdraw_attempt(self, *given: Any) -> None:
        await self.inner.withdraw_attempt(*given)

    async def complete(self, *given: Any) -> None:
        self.crash_injector.step()
        await self.inner.complete(*given)
        self.crash_injector.step()

    async def prune(self, *given: Any) -> None:
        await self.inner.prune(*given)

    async def preview_revisions(self, *given: Any) -> Any:
        assert isinstance(self.inner, PgLedger)
        return await self.inner.preview_revisions(*given)

    async def commit_chains(self, *given: Any) -> Any:
        assert isinstance(self.inner, PgLedger)
        self.crash_injector.step()
        owed = await self.inner.commit_chains(*given)
        self.crash_injector.step()
        return owed

    async def fetch_ended_chains(self, *given: Any) -> Any:
        assert isinstance(self.inner, PgLedger)
        return await self.inner.fetch_ended_chains(*given)


class FlakyEmbedder:
    """Never answer twice alike and fail at times, so that the memo must compensate."""

    fingerprint, model, dimension, state_dimension = "moody", "moody", 4, 0

    def __init__(self, crash_injector: CrashInjector, rng: random.Random) -> None:
        self.crash_injector, self.rng, self.n_embedded, self.n_failures = crash_injector, rng, 0, 0
        self.flaky = True

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        self.crash_injector.step()
        self.n_failures = (
            self.n_failures + 1 if self.rng.random() < 0.2 and self.n_failures < 3 else 0
        )
        if self.n_failures:
            raise EngineUnavailable("the engine has gone for coffee")
        await asyncio.sleep(0)
        if any("poison" in text for text in texts):
            raise UnreadableDocument("poison", code="POISON")
        self.n_embedded += len(texts)
        return [
            TextEmbedding(np.array([self._vector_value(text) for _ in range(4)], dtype=np.float16))
            for text in texts
        ]

    def _vector_value(self, text: str) -> float:
        return self.rng.random() if self.flaky else float(len(text))

    async def embed_query(self, text: str) -> QueryEmbedding:
        raise AssertionError("nobody asks here")


class LineParser:
    """Parse each line as a block."""

    fingerprint = "lines"

    async def plan(self, file: LocalFile) -> ParsePlan:
        if b"locked" in file.path.read_bytes():
            raise UnreadableDocument("locked", code="ENCRYPTED_DOCUMENT")
        return ParsePlan("text/plain", ("all",), None)

    async def parse(self, file: LocalFile, plan: ParsePlan, part: str) -> bytes:
        await asyncio.sleep(0)
        return file.path.read_bytes()

    def assemble(self, file: LocalFile, plan: ParsePlan, parts: Sequence[bytes]) -> Transcript:
        text, blocks, offset = parts[0].decode(), [], 0
        for line in text.splitlines(keepends=True):
            if line.strip():
                blocks.append(
                    Block(
                        kind="paragraph",
                        span=Span(char_start=offset, char_end=offset + len(line.rstrip("\n"))),
                    )
                )
            offset += len(line)
        return Transcript(markdown=text, blocks=blocks)


class LineChunker:
    fingerprint = "lines"

    def chunk(
        self, document_id: UUID, title: str | None, transcript: Transcript
    ) -> list[ParentChunk]:
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

    def with_schema(self, schema: EntitySchema) -> Extractor:
        return self

    async def extract(self, parents: Sequence[ParentChunk], language: str | None) -> Extraction:
        return Extraction()


@dataclass
class MemoryOwners:
    sources: dict[tuple[str, UUID], str | None] = field(default_factory=dict)

    async def fetch_owner(self, tenant: str, document_id: UUID) -> str | None:
        return self.sources.get((tenant, document_id))

    async def admit(self, admission: Admission) -> str | None:
        key = admission.tenant, admission.document_id
        owner = self.sources.get(key)
        if admission.source is not None and (
            owner is None or owner in admission.allowed or ANY_SOURCE in admission.allowed
        ):
            self.sources[key] = admission.source
        return self.sources.get(key)


class FolderBlobs:
    """The part of the blob port that the stages need, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, key: str) -> Path:
        return self.folder / key.replace("/", "__")

    async def put(self, key: str, data: bytes, *, media_type: str | None = None) -> BlobRef:
        self._path(key).write_bytes(data)
        return BlobRef(key=key, sha256=sha256_hex(data), size=len(data))

    async def get(self, key: str) -> bytes:
        return self._path(key).read_bytes()

    async def get_size(self, key: str) -> int | None:
        return self._path(key).stat().st_size if self._path(key).exists() else None

    async def copy(self, source: str, target: str) -> None:
        self._path(target).write_bytes(self._path(source).read_bytes())

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._path(key).unlink(missing_ok=True)

    def open_local(self, key: str) -> Any:
        path = self._path(key)

        class Here:
            async def __aenter__(self) -> Path:
                return path

            async def __aexit__(self, *error: object) -> None:
                return None

        return Here()


@dataclass
class SimulatedPipeline:
    """Crash at `crash_points` and deliver each event `repeats` times."""

    folder: Path
    crash_points: list[int]
    seed: int
    bounds: PartitionLimits
    repeats: int = 1
    tables_ledger: Ledger | None = None
    """In place of the one in memory."""
    revisions: LatestRevisions | None = None
    owners: DocumentOwners = field(default_factory=MemoryOwners)
    chain_log: Literal["tables", "records"] | None = None
    """Documents pass the chain, whose transaction appends their events to the tables' log, or which
    appends them to `log` before.
    """

    def __post_init__(self) -> None:
        self.crash_injector = CrashInjector([])
        self.rng = random.Random(self.seed)
        self.log = ListLog(self.crash_injector)
        self.memory_ledger = MemoryLedger(GENERATION)
        self.ledger = CrashingLedger(self.tables_ledger or self.memory_ledger, self.crash_injector)
        self.embedder = FlakyEmbedder(self.crash_injector, self.rng)
        self.codec = Codec(event_classes=EVENT_CLASSES)
        blobs: Any = FolderBlobs(self.folder)
        unused: Any = None
        self.ports = StagePorts(
            generation=GENERATION,
            blobs=blobs,
            memo=MemoryMemo(),
            fetcher=unused,
            parser=LineParser(),
            chunker=LineChunker(),
            extractor=NoExtractor(),
            embedder=self.embedder,
            language_detector=_NoLanguage(),
            latest_revisions=self.revisions or self,
            limits=IngressLimits(),
            assign_order=lambda position, _: [1, position.offset],
            owners=self.owners,
        )

    async def fetch_latest(self, tenant: str, document_id: UUID) -> LatestRevision | None:
        state = self.memory_ledger.documents.get(document_id)
        return LatestRevision(False, None, state.latest) if state else None

    async def push(
        self, event: DocumentReceived | DocumentAmended | DocumentWithdrawn, event_id: str
    ) -> None:
        self.log.store(
            await build_raw_record(event, event_id, source="test", time=EPOCH, codec=self.codec)
        )

    async def create_generation(self) -> None:
        """Create a generation as a worker does that finds none."""
        fact = build_root_event(
            GenerationCreated(generation=GENERATION), content_id("genesis"), "test", lambda: EPOCH
        )
        self.log.store(await self.codec.encode(fact, "control", "g1"))
        await self._drain(next(stage for stage in STAGES if stage.name == "control"))

    async def run(self) -> None:
        """Run every stage until nothing is pending, with crashes and restarts."""
        self.crash_injector.crash_points = sorted(self.crash_points)
        for stage in STAGES:
            await self._drain(stage)

    async def _drain(self, stage: Stage) -> None:
        acknowledged = 0
        while acknowledged < len(self.log.topics.get(stage.topic, [])):
            acknowledged = await self._run_until_crash(stage, acknowledged)

    async def _run_until_crash(self, stage: Stage, start: int) -> int:
        """Run a worker until it crashes or acknowledges all; return where the next one starts."""
        records = self.log.topics[stage.topic]
        finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        partition = FakePartition(stage.topic, len(records), start, finished)
        publisher = Publisher(stage.name, GENERATION, self.codec, lambda: EPOCH)
        runner_args: Any = (
            stage,
            self.ledger,
            self.log,
            self.ports,
            publisher,
            self.codec,
            Instrumentation(),
        )
        chained_records = ChainedRecords(self.ledger) if self.chain_log == "records" else None
        runner = (
            ChainedRunner(
                *runner_args,
                backoff=Backoff(0, 0),
                chain=self._build_chain(chained_records),
                is_ready=lambda: True,
                on_published=lambda _: None,
                pause_s=0,
            )
            if self.chain_log is not None and stage.name == "receive"
            else StageRunner(
                *runner_args,
                backoff=Backoff(0, 0),
                chained_records=None if stage.serves_all_generations else chained_records,
            )
        )

        def fail(error: BaseException) -> None:
            if not finished.done():
                finished.set_exception(error)

        self.crash_injector.end_process = fail
        sink = PartitionSink(runner, partition, fail, self.bounds)
        offered_ids: set[bytes | None] = set()
        for stored in records[start:]:
            # A copy that a redelivery appended is not repeated, or each stage would multiply them.
            event_id = stored.record.headers.get("ce_id")
            for _ in range(1 if event_id in offered_ids else self.repeats):
                sink.offer(stored)
            offered_ids.add(event_id)
        try:
            await finished
        except SimulatedCrash:
            pass
        finally:
            await sink.close()
        return partition.acknowledged

    def _build_chain(self, chained_records: ChainedRecords | None) -> StageChain:
        links = [
            ChainLink(
                stage,
                stage.topic,
                f"{stage.name}.g1",
                Publisher(stage.name, GENERATION, self.codec, lambda: EPOCH),
            )
            for stage in STAGES
            if not stage.serves_all_generations
        ]
        return StageChain(links, self.ledger, self.ports, chained_records)

    def list_outcomes(self) -> dict[str, list[str]]:
        """Return the distinct outcomes of each producer's event id."""
        outcomes_by_event: dict[str, dict[str, str]] = {}
        for stored in self.log.topics.get("outcomes", []):
            event = json.loads(stored.record.value or b"{}").get("event_id", "?")
            outcomes_by_event.setdefault(event, {})[stored.record.headers["ce_id"].decode()] = (
                stored.record.headers["ce_type"].decode()
            )
        return {event: list(kinds.values()) for event, kinds in outcomes_by_event.items()}

    def read_visible_state(self) -> dict[str, Any]:
        """Return the visible texts and vectors, and the withdrawn documents."""
        visible_orders = self.memory_ledger.visible_orders
        texts: dict[str, list[str]] = {}
        for key, row in self.memory_ledger.rows.items():
            if key[0] == "ChildRow" and visible_orders.get(key[1]) == key[2]:
                texts.setdefault(str(key[1]), []).append(row.text)  # type: ignore[union-attr]
        vectors = sum(
            1
            for key in self.memory_ledger.rows
            if key[0] == "VectorRow" and visible_orders.get(key[1]) == key[2]
        )
        return {
            "texts": {document: sorted(found) for document, found in texts.items()},
            "vectors": vectors,
            "visible": {str(document): order for document, order in visible_orders.items()},
            "withdrawn": {
                str(document): state.withdrawn
                for document, state in self.memory_ledger.documents.items()
                if state.withdrawn
            },
            "dead_lettered": sorted(
                (stage, event.code) for (stage, _), event in self.memory_ledger.dead_letters.items()
            ),
        }


@dataclass
class FakePartition:
    topic: str
    records: int
    acknowledged: int
    finished: asyncio.Future[None]
    number: int = 0

    def acknowledge(self, next_offset: int) -> None:
        assert next_offset >= self.acknowledged, "acknowledgements go forward"
        self.acknowledged = next_offset
        if next_offset >= self.records and not self.finished.done():
            self.finished.set_result(None)

    def resume(self) -> None: ...

    @property
    def committed_offset(self) -> int:
        return self.acknowledged


class _NoLanguage:
    def detect(self, text: str) -> str | None:
        return None


LINES = [f"line {number} of the long report about tolls" for number in range(50)]


LONG, SHORT = "\n".join(LINES), "\n".join(LINES[:3])
