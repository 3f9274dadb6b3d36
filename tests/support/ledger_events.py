"""Short events and their rows for tests of the ledger."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np

from processors import chunk, embed, get_stage_versions, index, transcribe
from schemas.events import (
    AmendmentAccepted,
    ChunksEmbedded,
    DocumentAccepted,
    DocumentChunked,
    DocumentRemoved,
    DocumentTranscribed,
    ErasureCompleted,
    ErasureRequested,
    Event,
)
from schemas.events.control import Scope
from schemas.generations import EmbedConfig, Generation, IndexConfig, compute_chain_fingerprints
from schemas.ids import content_id, make_document_id
from schemas.ports.ledger import ClaimResult, OrderingPolicy, ProjectedEvent
from schemas.rows import EventRow
from schemas.topics import Position
from schemas.values import BlobRef, ChildChunk, ChunkVector, Origin, ParentChunk, Span, Transcript
from sql.inbox.ledger import PgLedger
from streams.stage import Stage

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DIMENSION = 4
_ZERO = "AAAAAAAAAAA="
assert np.frombuffer(__import__("base64").b64decode(_ZERO), "<f2").shape == (DIMENSION,)


def make_sample_document_id(name: str) -> UUID:
    return make_document_id("default", "", name)


def _make_event(data: Any, fingerprint: str | None = None) -> Event[Any]:
    identity = content_id("test", data.model_dump_json(), type(data).__name__)
    order = data.order[-1]
    return Event(
        identity,
        data,
        "anabranch/test",
        str(identity),
        NOW,
        data.tenant,
        data.document_id,
        pipeline_fingerprint=fingerprint,
        position=Position("accepted", 0, order),
        appended_at=NOW,
        payload_sha256="x",
    )


def _common_fields(name: str, order: int) -> dict[str, Any]:
    origin = Origin(
        accepted_id=content_id("accepted", name, order),
        event_id=f"{name}-{order}",
        source="test",
        external_id=name,
    )
    return {
        "tenant": "default",
        "document_id": make_sample_document_id(name),
        "order": [1, order],
        "origin": origin,
    }


def make_accepted(name: str, order: int, content: str = "text", **fields: Any) -> Event[Any]:
    sha = content_id("content", content).hex
    blob = BlobRef(
        key=f"default/{make_sample_document_id(name)}/{sha}", sha256=sha, size=len(content)
    )
    return _make_event(
        DocumentAccepted(
            **_common_fields(name, order),
            external_id=name,
            blob=blob,
            payload_sha256="x",
            received_at=NOW,
            **fields,
        )
    )


def make_amended(name: str, order: int, **fields: Any) -> Event[Any]:
    return _make_event(
        AmendmentAccepted(
            **_common_fields(name, order),
            external_id=name,
            payload_sha256="x",
            received_at=NOW,
            **fields,
        )
    )


def make_removed(name: str, order: int, **fields: Any) -> Event[Any]:
    return _make_event(
        DocumentRemoved(
            **_common_fields(name, order),
            external_id=name,
            payload_sha256="x",
            received_at=NOW,
            **fields,
        )
    )


def make_transcribed(
    name: str, order: int, content: str = "text", fingerprint: str | None = None
) -> Event[Any]:
    return _make_event(
        DocumentTranscribed(
            **_common_fields(name, order),
            language="en",
            media_type="text/plain",
            content_sha256=content_id("content", content).hex,
            text_sha256="y",
            characters=len(content),
            transcript=Transcript(markdown=content, blocks=[]),
        ),
        fingerprint,
    )


def _make_chunks(name: str, words: list[str]) -> list[ParentChunk]:
    found = []
    for number, word in enumerate(words):
        child = ChildChunk(
            id=content_id("chunk", name, word),
            ordinal=number,
            text=word,
            char_start=0,
            char_end=len(word),
            spans=[Span(char_start=0, char_end=len(word))],
            tokens=1,
        )
        found.append(
            ParentChunk(
                id=content_id("parent", name, word),
                ordinal=number,
                text=word,
                char_start=0,
                char_end=len(word),
                tokens=1,
                children=[child],
            )
        )
    return found


def make_chunked(
    name: str, order: int, words: list[str], part: int = 1, parts: int = 1
) -> Event[Any]:
    return _make_event(
        DocumentChunked(
            **_common_fields(name, order),
            part=part,
            parts=parts,
            language="en",
            parents=_make_chunks(name, words),
        )
    )


def make_embedded(
    name: str, order: int, words: list[str], part: int = 1, parts: int = 1
) -> Event[Any]:
    vectors = [
        ChunkVector(chunk_id=content_id("chunk", name, word), vector=_ZERO) for word in words
    ]
    return _make_event(
        ChunksEmbedded(
            **_common_fields(name, order),
            part=part,
            parts=parts,
            model="none",
            dimension=DIMENSION,
            vectors=vectors,
        )
    )


def find_stage(fact: Event[Any]) -> Stage:
    return {
        DocumentAccepted: transcribe.STAGE,
        DocumentRemoved: transcribe.STAGE,
        AmendmentAccepted: transcribe.STAGE,
        DocumentTranscribed: chunk.STAGE,
        DocumentChunked: embed.STAGE,
        ChunksEmbedded: index.STAGE,
    }[type(fact.data)]


def project_event(fact: Event[Any]) -> tuple[str, OrderingPolicy, ProjectedEvent]:
    stage = find_stage(fact)
    return stage.name, stage.ordering_policy, ProjectedEvent(fact, tuple(stage.project(fact)))


def generate_history(rng: random.Random) -> tuple[list[Event[Any]], dict[Any, tuple[int, ...]]]:
    """Generate events of twelve documents and the state that must be visible at the end.

    Documents have up to three revisions in parts; a third are withdrawn in between.
    """
    facts: list[Event[Any]] = []
    last: dict[Any, tuple[int, ...]] = {}
    for number in range(12):
        name, order = f"doc{number}", 0
        for _ in range(rng.randint(1, 3)):
            order += 2
            facts += generate_revision(name, order, rng)
            last[make_sample_document_id(name)] = (1, order)
        if number % 3 == 0:
            facts.append(make_removed(name, order + (1 if number % 2 else -1)))
            if number % 2:
                del last[make_sample_document_id(name)]
    return facts, last


def generate_revision(name: str, order: int, rng: random.Random) -> list[Event[Any]]:
    parts = rng.randint(1, 3)
    words = [[f"word{rng.randint(0, 20)} {part}" for _ in range(1)] for part in range(parts)]
    pieces = [
        (make_chunked(name, order, w, n, parts), make_embedded(name, order, w, n, parts))
        for n, w in enumerate(words, 1)
    ]
    return [
        make_accepted(name, order, f"{order}"),
        make_transcribed(name, order, f"{order}", "how"),
        *(fact for pair in pieces for fact in pair),
    ]


CONFIG = IndexConfig(embed=EmbedConfig(dimension=DIMENSION, state_dimension=0))


GENERATION = Generation(
    name="g1",
    config=CONFIG,
    how=compute_chain_fingerprints(CONFIG, get_stage_versions()),
    topics={},
    state="live",
)


TRANSCRIBE_FINGERPRINT = GENERATION.how["transcribe"]


def make_generation(name: str, dimension: int = DIMENSION) -> Generation:
    config = IndexConfig(embed=EmbedConfig(dimension=dimension, state_dimension=0))
    return Generation(name=name, config=config, how={"transcribe": "how"}, topics={})


G1 = make_generation("g1")


async def claim_events(ledger: PgLedger, *facts: Event[Any]) -> list[ClaimResult]:
    """Claim consecutive events of one stage in one batch."""
    answers: list[ClaimResult] = []
    batch: list[tuple[Any, ...]] = [project_event(fact) for fact in facts]
    while batch:
        stage, counts, _ = batch[0]
        together = [event for name, _, event in _take_same_stage(batch, stage)]
        answers += await ledger.claim(stage, counts, together)
        batch = batch[len(together) :]
    return answers


def make_revision_events(name: str, order: int, words: list[str]) -> list[Event[Any]]:
    return [
        make_accepted(name, order),
        make_transcribed(name, order, fingerprint="how"),
        make_chunked(name, order, words),
        make_embedded(name, order, words),
    ]


def make_erasure_rows(scope: Scope, receipt: UUID, offset: int) -> list[EventRow]:
    """Make the request and the completion, at this offset, of an erasure of the default tenant."""
    fields: dict[str, Any] = {"receipt_id": receipt, "tenant": "default"}
    outcome = {"documents": 1, "removed": {}, "events": 0, "method": "nothing", "remains": []}
    return [
        EventRow(ErasureRequested(**fields, scope=scope, subject="default", requested_at=NOW)),
        EventRow(ErasureCompleted(**fields, **outcome, completed_at=NOW), offset),
    ]


def _take_same_stage(batch: Sequence[tuple[Any, ...]], stage: str) -> Sequence[tuple[Any, ...]]:
    end = next((n for n, item in enumerate(batch) if item[0] != stage), len(batch))
    return batch[:end]
