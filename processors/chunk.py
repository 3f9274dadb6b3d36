"""Split Markdown into parent and child chunks. Projects the text of the revision."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from engines.chunk import create_chunker
from processors.outcomes import make_superseded_outcome
from processors.transcribe import load_transcript
from schemas.events import DocumentChunked, DocumentSuperseded, DocumentTranscribed, Event
from schemas.generations import ChunkConfig
from schemas.ports.engines import Chunker
from schemas.ports.ledger import ClaimStatus, OrderingPolicy
from schemas.ports.stage_ports import StagePorts
from schemas.rows import Row, TextRow, copy_row
from schemas.topics import OCR_DONE
from schemas.values import ParentChunk
from streams.stage import Emission, PendingEvent, Stage

VERSION = 1
# Also bounds the vectors of one `chunks.embedded` event, which has the same part.
MAX_PART_CHILDREN = 64
MAX_PART_BYTES = 400_000
"""Keeps the event of a part well under the log's record limit."""
# Rough size of one span or raw cell in JSON.
SPAN_BYTES = 100


def project(event: Event[DocumentTranscribed]) -> Iterable[Row]:
    data = event.data
    yield copy_row(
        TextRow,
        data,
        order=tuple(data.order),
        markdown=data.transcript.markdown if data.transcript else None,
        warnings=[notice.model_dump() for notice in data.warnings],
    )


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    return [
        emission
        for pending_event in pending_events
        for emission in await _chunk_transcript(pending_event, ports)
    ]


async def _chunk_transcript(pending_event: PendingEvent, ports: StagePorts) -> list[Emission]:
    # It has no rows, but its producer still needs an outcome.
    if pending_event.status is ClaimStatus.SUPERSEDED:
        return [make_superseded_outcome(pending_event)]
    data: DocumentTranscribed = pending_event.event.data
    transcript = await load_transcript(data, ports.blobs)
    chunker = choose_chunker(data, ports.chunker)
    # Chunking a long text takes long enough to block the event loop.
    if len(transcript.markdown) > 20_000:
        parents = await asyncio.to_thread(chunker.chunk, data.document_id, data.title, transcript)
    else:
        parents = chunker.chunk(data.document_id, data.title, transcript)
    parts = pack_parts(parents)
    return [
        Emission(
            pending_event.event,
            DocumentChunked(
                tenant=data.tenant,
                document_id=data.document_id,
                order=data.order,
                origin=data.origin,
                part=number,
                parts=len(parts),
                title=data.title,
                language=data.language,
                parents=part_parents,
                extract=data.extract,
            ),
            ordinal=number,
        )
        for number, part_parents in enumerate(parts, 1)
    ]


def choose_chunker(data: DocumentTranscribed, default: Chunker) -> Chunker:
    """Return the chunker of the document's collection, else that of the generation."""
    return create_chunker(ChunkConfig(**data.chunk.model_dump())) if data.chunk else default


def pack_parts(parents: Sequence[ParentChunk]) -> list[list[ParentChunk]]:
    """Pack parents into parts of at most 64 children.

    A parent with more children is repeated in each part that has some of them. A document without
    text has one part without chunks.
    """
    # Never empty: a revision without any part would never be complete, and so never visible.
    parts: list[list[ParentChunk]] = [[]]
    n_children = part_bytes = 0
    split_parents = (
        parent.model_copy(update={"children": parent.children[start : start + MAX_PART_CHILDREN]})
        for parent in parents
        # At least one piece, so that a parent without children is not lost.
        for start in range(0, max(1, len(parent.children)), MAX_PART_CHILDREN)
    )
    for split_parent in split_parents:
        piece_bytes = _count_text_bytes(split_parent.text, split_parent.section) + sum(
            _count_text_bytes(child.text, child.prefix)
            + SPAN_BYTES * sum(1 + len(span.raw_cells or ()) for span in child.spans)
            for child in split_parent.children
        )
        if parts[-1] and (
            n_children + len(split_parent.children) > MAX_PART_CHILDREN
            or part_bytes + piece_bytes > MAX_PART_BYTES
        ):
            parts.append([])
            n_children = part_bytes = 0
        parts[-1].append(split_parent)
        n_children += len(split_parent.children)
        part_bytes += piece_bytes
    return parts


def _count_text_bytes(*texts: str) -> int:
    """Return the approximate size in JSON, which is UTF-8 in any script."""
    return sum(len(text.encode()) for text in texts)


STAGE = Stage(
    "chunk",
    OCR_DONE,
    VERSION,
    ordering_policy=OrderingPolicy.VISIBLE,
    project=project,
    react=react,
    batch_size=8,
    emits=(DocumentChunked, DocumentSuperseded),
)
