"""Estimate the cost of another index configuration without calling an engine.

The sources are the log, the cache of engine results, and the tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from processors import STAGES
from processors.chunk import choose_chunker, pack_parts
from processors.embed import make_embedding_key
from processors.extract import choose_extractor, list_memo_keys
from processors.transcribe import load_transcript, make_part_key
from schemas.errors import NewerVersion, PermanentError
from schemas.events import DocumentAccepted, DocumentChunked, DocumentTranscribed, Event
from schemas.generations import UPSTREAM_STAGES, Generation
from schemas.ports.engines import LocalFile
from schemas.ports.ledger import MemoKey
from schemas.topics import ACCEPTED, OCR_DONE
from schemas.values import ParentChunk
from services.engines import Engines
from services.storage import Storage
from sql.inbox.ledger import PgEngineResultCache
from sql.index.generations import IndexSize, fetch_visible_orders, measure_index

OUTPUT_TOPICS = {
    stage.name: stage.output_topic for stage in STAGES if stage.output_topic is not None
}
INPUT_TOPICS = {stage.name: stage.topic for stage in STAGES}
LOOKUP_BATCH_SIZE = 1_000
SECONDS_PER_INPUT: Mapping[str, tuple[float, float]] = {
    "parse": (0.01, 1.0),
    "extract": (0.002, 3.0),
    "embed": (0.004, 0.08),
}
"""Seconds per input with a fast and a slow engine, at the stages' concurrency."""
EVENTS_PER_SECOND = (60.0, 600.0)
"""Projection rates, slow and fast, including the indexes built afterwards."""


def find_changed_stages(live: Generation, fingerprints: Mapping[str, str]) -> list[str]:
    """List the stages whose output would change, upstream first."""
    return [stage for stage in UPSTREAM_STAGES if live.how.get(stage) != fingerprints[stage]]


@dataclass(frozen=True, slots=True)
class ReindexEstimate:
    """`event_count` counts events of visible revisions in the topic of the first changed stage.

    `expected_event_count` is what the index holds.
    """

    event_count: int
    expected_event_count: int
    engine_calls: Mapping[str, int]
    cache_hit_count: int
    token_count: int


@dataclass(frozen=True, slots=True)
class ReindexPlan:
    live: Generation
    stages: Sequence[str]
    estimate: ReindexEstimate
    size: IndexSize
    dimension: int
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Changed settings with their values `from` and `to`."""

    @property
    def topic(self) -> str:
        base_topic = INPUT_TOPICS[self.stages[0]]
        return self.live.topics.get(base_topic, base_topic)

    @property
    def is_covered(self) -> bool:
        return self.estimate.event_count >= self.estimate.expected_event_count

    def to_dict(self) -> dict[str, Any]:
        low, high = self._estimate_minutes()
        return {
            "first_changed_stage": self.stages[0],
            "stages": list(self.stages),
            "settings": self.settings,
            "topic": self.topic,
            "events": self.estimate.event_count,
            "engine_calls": {
                engine: calls for engine, calls in self.estimate.engine_calls.items() if calls
            },
            "memo_hits": self.estimate.cache_hit_count,
            "tokens": self.estimate.token_count,
            # Only vectors grow with the dimension.
            "bytes": self.size.other_bytes
            + self.size.vector_bytes * self.dimension // self.live.config.embed.dimension,
            "minutes": {"low": low, "high": high},
            "covered_by_retention": self.is_covered,
        }

    def _estimate_minutes(self) -> tuple[float, float]:
        """Estimate the low and high bound.

        Everything is projected again, whatever the first changed stage.
        """
        # Each part is projected by `embed`, `index` and `graph`.
        projected_count = self.size.documents + 3 * self.size.parts
        return tuple(  # type: ignore[return-value]
            round(
                (
                    projected_count / rate
                    + sum(
                        SECONDS_PER_INPUT[engine][bound] * calls
                        for engine, calls in self.estimate.engine_calls.items()
                    )
                )
                / 60,
                2,
            )
            for bound, rate in ((0, EVENTS_PER_SECOND[1]), (1, EVENTS_PER_SECOND[0]))
        )


@dataclass(slots=True)
class CacheLookup:
    """Count distinct engine inputs, and those without a cached result."""

    cache: PgEngineResultCache
    pending: dict[str, set[MemoKey]] = field(default_factory=dict)
    engine_calls: dict[str, int] = field(default_factory=dict)
    seen: set[tuple[UUID, str, bytes]] = field(default_factory=set)
    hit_count: int = 0

    async def add(self, engine: str, keys: Iterable[MemoKey]) -> None:
        new_keys = [
            key for key in keys if (key.document_id, key.engine, key.input_sha256) not in self.seen
        ]
        self.seen.update((key.document_id, key.engine, key.input_sha256) for key in new_keys)
        pending = self.pending.setdefault(engine, set())
        pending.update(new_keys)
        if len(pending) >= LOOKUP_BATCH_SIZE:
            await self._look_up(engine)

    async def flush(self) -> None:
        for engine in self.pending:
            await self._look_up(engine)

    async def _look_up(self, engine: str) -> None:
        keys = list(self.pending[engine])
        known_count = await self.cache.count_cached(keys) if keys else 0
        self.engine_calls[engine] = self.engine_calls.get(engine, 0) + len(keys) - known_count
        self.hit_count += known_count
        self.pending[engine] = set()


@dataclass(slots=True)
class ReindexPlanner:
    storage: Storage
    live: Generation
    engines: Engines

    async def plan(self, stages: Sequence[str], dimension: int) -> ReindexPlan:
        size = await measure_index(self.storage.pool, self.live.name)
        lookup = CacheLookup(PgEngineResultCache(self.storage.pool))
        calls, expected_count, tokens = lookup.engine_calls, size.documents, size.tokens
        if stages[0] == "transcribe":
            events = await self._estimate_parsing(lookup)
            # The new parser's output is unknown: assume as much as now, and no cache hits.
            calls = {**calls, "extract": size.passages, "embed": size.texts}
        elif stages[0] == "chunk":
            events, tokens = await self._estimate_chunking(lookup)
        else:
            # Every topic after `ocr_done` has an event per part.
            is_per_part = INPUT_TOPICS[stages[0]] not in (ACCEPTED, OCR_DONE)
            events, expected_count = 0, size.parts if is_per_part else size.documents
            async for event in self._read_visible_events(stages[0]):
                events += 1
                # Calls of a stage that reads another topic are not estimated.
                if isinstance(event.data, DocumentChunked):
                    await self._add_lookups(lookup, event.data, event.data.parents, stages)
            await lookup.flush()
        estimate = ReindexEstimate(events, expected_count, calls, lookup.hit_count, tokens)
        return ReindexPlan(self.live, stages, estimate, size, dimension)

    async def _estimate_parsing(self, lookup: CacheLookup) -> int:
        event_count = 0
        async for event in self._read_visible_events("transcribe"):
            data = event.data
            # Withdrawals and amendments call no engine.
            if not isinstance(data, DocumentAccepted):
                continue
            event_count += 1
            async with self.storage.blobs.open_local(data.blob.key) as path:
                file = LocalFile(
                    path,
                    data.filename,
                    data.blob.media_type or data.media_type,
                    data.blob.size,
                    data.title,
                    data.language,
                )
                plan = await self.engines.parser.plan(file)
            await lookup.add(
                "parse",
                [
                    make_part_key(data, file, plan, part, self.engines.parser.fingerprint)
                    for part in plan.parts
                ],
            )
        await lookup.flush()
        return event_count

    async def _estimate_chunking(self, lookup: CacheLookup) -> tuple[int, int]:
        """Run the chunker, which needs no engine, and look its chunks up."""
        event_count = token_count = 0
        async for event in self._read_visible_events("chunk"):
            data = event.data
            assert isinstance(data, DocumentTranscribed)
            event_count += 1
            transcript = await load_transcript(data, self.storage.blobs)
            parents = await asyncio.to_thread(
                choose_chunker(data, self.engines.chunker).chunk,
                data.document_id,
                data.title,
                transcript,
            )
            token_count += sum(child.tokens for parent in parents for child in parent.children)
            for group in pack_parts(parents):
                await self._add_lookups(lookup, data, group, ("extract", "embed"))
        await lookup.flush()
        return event_count, token_count

    async def _add_lookups(
        self,
        lookup: CacheLookup,
        data: DocumentChunked | DocumentTranscribed,
        parents: Sequence[ParentChunk],
        stages: Sequence[str],
    ) -> None:
        if "extract" in stages:
            await lookup.add(
                "extract",
                list_memo_keys(
                    data.tenant,
                    data.document_id,
                    data.language,
                    parents,
                    choose_extractor(data, self.engines.extractor).fingerprint,
                ),
            )
        if "embed" in stages:
            children = [child for parent in parents for child in parent.children]
            await lookup.add(
                "embed",
                [
                    make_embedding_key(
                        data.tenant, data.document_id, child, self.engines.embedder.fingerprint
                    )
                    for child in children
                ],
            )

    async def _read_visible_events(self, stage: str) -> AsyncIterator[Event[Any]]:
        """Read the stage's input events of visible revisions, each once."""
        visible = await fetch_visible_orders(self.storage.pool, self.live.name)
        base_topic, seen_ids = INPUT_TOPICS[stage], set[UUID]()
        async for stored in self.storage.log.read(self.live.topics.get(base_topic, base_topic)):
            try:
                # Erased, forged or newer: not part of the index.
                event = await self.storage.codec.decode(stored)
            except (PermanentError, NewerVersion):
                continue
            # The log may hold an event twice.
            if event.id not in seen_ids and visible.get(event.data.document_id) == tuple(
                event.data.order
            ):
                seen_ids.add(event.id)
                yield event
