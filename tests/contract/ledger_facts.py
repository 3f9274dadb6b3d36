"""Facts and their rows, short enough to read in a test."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np

from processors import chunk, embed, index, transcribe
from schemas.events import AmendmentAccepted, ChunksEmbedded, DocumentAccepted, DocumentChunked, DocumentRemoved, DocumentTranscribed, Fact
from schemas.ids import content_id, document_id
from schemas.ports.ledger import Counts, Projected
from schemas.records import Position
from schemas.values import BlobRef, ChildChunk, ChunkVector, Origin, ParentChunk, Span, Transcript
from streams.stage import Stage

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DIMENSION = 4
_ZERO = "AAAAAAAAAAA="
assert np.frombuffer(__import__("base64").b64decode(_ZERO), "<f2").shape == (DIMENSION,)


def document(name: str) -> UUID:
    return document_id("default", "", name)


def _fact(data: Any, how: str | None = None) -> Fact[Any]:
    identity = content_id("test", data.model_dump_json(), type(data).__name__)
    order = data.order[-1]
    return Fact(
        identity,
        data,
        "anabranch/test",
        str(identity),
        NOW,
        data.tenant,
        data.document_id,
        how=how,
        position=Position("accepted", 0, order),
        appended_at=NOW,
        payload_sha256="x",
    )


def _common(name: str, order: int) -> dict[str, Any]:
    origin = Origin(accepted_id=content_id("accepted", name, order), event_id=f"{name}-{order}", source="test", external_id=name)
    return {"tenant": "default", "document_id": document(name), "order": [1, order], "origin": origin}


def accepted(name: str, order: int, content: str = "text", **fields: Any) -> Fact[Any]:
    sha = content_id("content", content).hex
    blob = BlobRef(key=f"default/{document(name)}/{sha}", sha256=sha, size=len(content))
    return _fact(DocumentAccepted(**_common(name, order), external_id=name, blob=blob, payload_sha256="x", received_at=NOW, **fields))


def amended(name: str, order: int, **said: Any) -> Fact[Any]:
    return _fact(AmendmentAccepted(**_common(name, order), external_id=name, payload_sha256="x", received_at=NOW, **said))


def removed(name: str, order: int) -> Fact[Any]:
    return _fact(DocumentRemoved(**_common(name, order), external_id=name, payload_sha256="x", received_at=NOW))


def transcribed(name: str, order: int, content: str = "text", how: str | None = None) -> Fact[Any]:
    return _fact(
        DocumentTranscribed(
            **_common(name, order), language="en", media_type="text/plain", content_sha256=content_id("content", content).hex, text_sha256="y", characters=len(content),
            transcript=Transcript(markdown=content, blocks=[]),
        ),
        how,
    )  # fmt: skip


def _chunks(name: str, words: list[str]) -> list[ParentChunk]:
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
        found.append(ParentChunk(id=content_id("parent", name, word), ordinal=number, text=word, char_start=0, char_end=len(word), tokens=1, children=[child]))
    return found


def chunked(name: str, order: int, words: list[str], part: int = 1, parts: int = 1) -> Fact[Any]:
    return _fact(DocumentChunked(**_common(name, order), part=part, parts=parts, language="en", parents=_chunks(name, words)))


def embedded(name: str, order: int, words: list[str], part: int = 1, parts: int = 1) -> Fact[Any]:
    vectors = [ChunkVector(chunk_id=content_id("chunk", name, word), vector=_ZERO) for word in words]
    return _fact(ChunksEmbedded(**_common(name, order), part=part, parts=parts, model="none", dimension=DIMENSION, vectors=vectors))


def stage_of(fact: Fact[Any]) -> Stage:
    return {
        DocumentAccepted: transcribe.STAGE, DocumentRemoved: transcribe.STAGE, AmendmentAccepted: transcribe.STAGE, DocumentTranscribed: chunk.STAGE, DocumentChunked: embed.STAGE, ChunksEmbedded: index.STAGE,
    }[type(fact.data)]  # fmt: skip


def projected(fact: Fact[Any]) -> tuple[str, Counts, Projected]:
    stage = stage_of(fact)
    return stage.name, stage.counts, Projected(fact, tuple(stage.project(fact)))


def history(mood: random.Random) -> tuple[list[Fact[Any]], dict[Any, tuple[int, ...]]]:
    """Facts of twelve documents with up to three revisions in parts, a third of them withdrawn in between, and what must be visible at the end."""
    facts: list[Fact[Any]] = []
    last: dict[Any, tuple[int, ...]] = {}
    for number in range(12):
        name, order = f"doc{number}", 0
        for _ in range(mood.randint(1, 3)):
            order += 2
            facts += in_parts(name, order, mood)
            last[document(name)] = (1, order)
        if number % 3 == 0:
            facts.append(removed(name, order + (1 if number % 2 else -1)))
            if number % 2:
                del last[document(name)]
    return facts, last


def in_parts(name: str, order: int, mood: random.Random) -> list[Fact[Any]]:
    parts = mood.randint(1, 3)
    words = [[f"word{mood.randint(0, 20)} {part}" for _ in range(1)] for part in range(parts)]
    pieces = [(chunked(name, order, w, n, parts), embedded(name, order, w, n, parts)) for n, w in enumerate(words, 1)]
    return [accepted(name, order, f"{order}"), transcribed(name, order, f"{order}", "how"), *(fact for pair in pieces for fact in pair)]
