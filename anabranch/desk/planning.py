"""What another configuration of the index would take, before anything is done: by the log, the memo and the tables, and by asking no engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from anabranch.composition.engines import Engines
from anabranch.composition.storage import Storage
from processors import STAGES
from processors.chunk import packed
from processors.embed import text_key
from processors.extract import question_keys
from processors.transcribe import part_key, transcript_of
from schemas.errors import NewerVersion, PermanentError
from schemas.events import DocumentAccepted, DocumentChunked, DocumentTranscribed, Fact
from schemas.generations import Generation
from schemas.ports.engines import File
from schemas.ports.ledger import MemoKey
from schemas.values import ParentChunk
from sql.index_size import IndexSize, index_size, visible_orders
from sql.memo import PgMemo

ORDER = ("transcribe", "chunk", "extract", "embed")
"""Stages that make facts, each after those whose facts it reads."""
OUTPUTS = {stage.name: stage.output for stage in STAGES if stage.output is not None}
INPUTS = {stage.name: stage.topic for stage in STAGES}
ASKED_AT_ONCE = 1_000
SECONDS: Mapping[str, tuple[float, float]] = {"parse": (0.01, 1.0), "extract": (0.002, 3.0), "embed": (0.004, 0.08)}
"""Of one input, from a quick engine to a slow one, with as many at once as the stages ask."""
EVENTS_PER_SECOND = (60.0, 600.0)
"""Projected, with their indexes built afterwards."""


def changed_stages(live: Generation, how: Mapping[str, str]) -> list[str]:
    """Those whose facts would come out otherwise, the first first."""
    return [stage for stage in ORDER if live.how.get(stage) != how[stage]]


@dataclass(frozen=True, slots=True)
class Foreseen:
    """`events` are those of current revisions in the topic that the first changed stage reads; `expected` is how many there should be."""

    events: int
    expected: int
    calls: Mapping[str, int]
    memo_hits: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    live: Generation
    stages: Sequence[str]
    foreseen: Foreseen
    size: IndexSize
    dimension: int
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Those of the index that change: from what, to what."""

    @property
    def topic(self) -> str:
        plain = INPUTS[self.stages[0]]
        return self.live.topics.get(plain, plain)

    @property
    def covered(self) -> bool:
        return self.foreseen.events >= self.foreseen.expected

    def body(self) -> dict[str, Any]:
        low, high = self._minutes()
        return {
            "first_changed_stage": self.stages[0],
            "stages": list(self.stages),
            "settings": self.settings,
            "topic": self.topic,
            "events": self.foreseen.events,
            "engine_calls": {engine: calls for engine, calls in self.foreseen.calls.items() if calls},
            "memo_hits": self.foreseen.memo_hits,
            "tokens": self.foreseen.tokens,
            "bytes": self.size.other_bytes + self.size.vector_bytes * self.dimension // self.live.config.embed.dimension,
            "minutes": {"low": low, "high": high},
            "covered_by_retention": self.covered,
        }

    def _minutes(self) -> tuple[float, float]:
        """All is projected anew, whatever the first stage."""
        projected = self.size.documents + 3 * self.size.parts
        return tuple(  # type: ignore[return-value]
            round((projected / speed + sum(SECONDS[engine][end] * calls for engine, calls in self.foreseen.calls.items())) / 60, 2)
            for end, speed in ((0, EVENTS_PER_SECOND[1]), (1, EVENTS_PER_SECOND[0]))
        )


@dataclass(slots=True)
class Questions:
    """Different ones, and how many of them the memo does not know."""

    memo: PgMemo
    waiting: dict[str, set[MemoKey]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    seen: set[tuple[UUID, str, bytes]] = field(default_factory=set)
    hits: int = 0

    async def add(self, engine: str, keys: Iterable[MemoKey]) -> None:
        fresh = [key for key in keys if (key.document_id, key.engine, key.input_sha256) not in self.seen]
        self.seen.update((key.document_id, key.engine, key.input_sha256) for key in fresh)
        waiting = self.waiting.setdefault(engine, set())
        waiting.update(fresh)
        if len(waiting) >= ASKED_AT_ONCE:
            await self._look_up(engine)

    async def finish(self) -> None:
        for engine in self.waiting:
            await self._look_up(engine)

    async def _look_up(self, engine: str) -> None:
        keys = list(self.waiting[engine])
        known = await self.memo.known(keys) if keys else 0
        self.calls[engine] = self.calls.get(engine, 0) + len(keys) - known
        self.hits += known
        self.waiting[engine] = set()


@dataclass(slots=True)
class Planner:
    storage: Storage
    live: Generation
    engines: Engines

    async def plan(self, stages: Sequence[str], dimension: int) -> Plan:
        size = await index_size(self.storage.pool, self.live.name)
        return Plan(self.live, stages, await self._foreseen(stages, size), size, dimension)

    async def _foreseen(self, stages: Sequence[str], size: IndexSize) -> Foreseen:
        questions = Questions(PgMemo(self.storage.pool))
        if stages[0] == "transcribe":
            events = await self._parsed(questions)
            # What a parser will find is not known before: as much as the last one, and nothing of it asked before.
            calls = {**questions.calls, "extract": size.passages, "embed": size.texts}
            return Foreseen(events, size.documents, calls, questions.hits, size.tokens)
        if stages[0] == "chunk":
            events, tokens = await self._cut(questions)
            return Foreseen(events, size.documents, questions.calls, questions.hits, tokens)
        events = await self._asked(questions, stages)
        return Foreseen(events, size.parts, questions.calls, questions.hits, size.tokens)

    async def _parsed(self, questions: Questions) -> int:
        events = 0
        async for fact in self._current("transcribe"):
            data = fact.data
            if not isinstance(data, DocumentAccepted):
                continue
            events += 1
            async with self.storage.blobs.local(data.blob.key) as path:
                file = File(path, data.filename, data.media_type, data.blob.size, data.title, data.language)
                plan = await self.engines.parser.plan(file)
            await questions.add("parse", [part_key(data, file, plan, part, self.engines.parser.fingerprint) for part in plan.parts])
        await questions.finish()
        return events

    async def _cut(self, questions: Questions) -> tuple[int, int]:
        """The chunker costs nothing but time, so it is run."""
        events = tokens = 0
        async for fact in self._current("chunk"):
            data = fact.data
            assert isinstance(data, DocumentTranscribed)
            events += 1
            transcript = await transcript_of(data, self.storage.blobs)
            parents = await asyncio.to_thread(self.engines.chunker.chunk, data.document_id, data.title, transcript)
            tokens += sum(child.tokens for parent in parents for child in parent.children)
            for group in packed(parents):
                await self._ask_of(questions, data, group, ("extract", "embed"))
        await questions.finish()
        return events, tokens

    async def _asked(self, questions: Questions, stages: Sequence[str]) -> int:
        events = 0
        async for fact in self._current(stages[0]):
            assert isinstance(fact.data, DocumentChunked)
            events += 1
            await self._ask_of(questions, fact.data, fact.data.parents, stages)
        await questions.finish()
        return events

    async def _ask_of(self, questions: Questions, data: DocumentChunked | DocumentTranscribed, parents: Sequence[ParentChunk], stages: Sequence[str]) -> None:
        if "extract" in stages:
            await questions.add("extract", question_keys(data.tenant, data.document_id, data.language, parents, self.engines.extractor.fingerprint))
        if "embed" in stages:
            children = [child for parent in parents for child in parent.children]
            await questions.add("embed", [text_key(data.tenant, data.document_id, child, self.engines.embedder.fingerprint) for child in children])

    async def _current(self, stage: str) -> AsyncIterator[Fact[Any]]:
        """Facts of visible revisions that the stage would read, each once."""
        visible = await visible_orders(self.storage.pool, self.live.name)
        plain, seen = INPUTS[stage], set[UUID]()
        async for stored in self.storage.log.read(self.live.topics.get(plain, plain)):
            try:
                fact = await self.storage.codec.decode(stored)
            except (PermanentError, NewerVersion):
                continue
            if fact.id not in seen and visible.get(fact.data.document_id) == tuple(fact.data.order):
                seen.add(fact.id)
                yield fact
