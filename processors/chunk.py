"""Markdown to parents and children. Projects the text of the revision."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from processors.outcomes import superseded
from processors.transcribe import transcript_of
from schemas.events import DocumentChunked, DocumentTranscribed, Fact
from schemas.ports.bundle import Ports
from schemas.ports.ledger import Claim
from schemas.rows import Row, TextRow
from schemas.values import ChildChunk, ParentChunk
from streams.stage import Counted, Stage, Statement
from streams.topics import CHUNKED, OCR_DONE

VERSION = 1
PART_CHILDREN = 64
PART_BYTES = 400_000
"""Bytes of one part at most, so that its event stays well under the log's limit."""
SPAN_BYTES = 100


def project(fact: Fact[DocumentTranscribed]) -> Iterable[Row]:
    data = fact.data
    yield TextRow(
        document_id=data.document_id,
        order=tuple(data.order),
        tenant=data.tenant,
        title=data.title,
        language=data.language,
        media_type=data.media_type,
        content_sha256=data.content_sha256,
        text_sha256=data.text_sha256,
        characters=data.characters,
        pages=data.pages,
        markdown=data.transcript.markdown if data.transcript else None,
        blob=data.blob,
        warnings=[notice.model_dump() for notice in data.warnings],
    )


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    return [statement for item in counted for statement in await _chunked(item, ports)]


async def _chunked(item: Counted, ports: Ports) -> list[Statement]:
    if item.claim is Claim.SUPERSEDED:
        return [superseded(item)]
    data: DocumentTranscribed = item.fact.data
    transcript = await transcript_of(data, ports.blobs)
    if len(transcript.markdown) > 20_000:
        parents = await asyncio.to_thread(ports.chunker.chunk, data.document_id, data.title, transcript)
    else:
        parents = ports.chunker.chunk(data.document_id, data.title, transcript)
    groups = packed(parents)
    return [
        Statement(
            item.fact,
            DocumentChunked(
                tenant=data.tenant,
                document_id=data.document_id,
                order=data.order,
                origin=data.origin,
                part=number,
                parts=len(groups),
                title=data.title,
                language=data.language,
                parents=group,
            ),
            ordinal=number,
        )
        for number, group in enumerate(groups, 1)
    ]


def packed(parents: Sequence[ParentChunk]) -> list[list[ParentChunk]]:
    """Parts of at most 64 children. A parent with more is repeated in each part that holds some of them; a document without text has one part without chunks."""
    groups: list[list[ParentChunk]] = [[]]
    children = size = 0
    for piece in (piece for parent in parents for piece in _pieces(parent)):
        weight = _bytes(piece.text, piece.section) + sum(map(_weight, piece.children))
        if groups[-1] and (children + len(piece.children) > PART_CHILDREN or size + weight > PART_BYTES):
            groups.append([])
            children = size = 0
        groups[-1].append(piece)
        children += len(piece.children)
        size += weight
    return groups


def _weight(child: ChildChunk) -> int:
    return _bytes(child.text, child.prefix) + SPAN_BYTES * len(child.spans)


def _bytes(*texts: str) -> int:
    """As JSON writes them, near enough: UTF-8, whatever the script."""
    return sum(len(text.encode()) for text in texts)


def _pieces(parent: ParentChunk) -> Iterable[ParentChunk]:
    for start in range(0, max(1, len(parent.children)), PART_CHILDREN):
        yield parent.model_copy(update={"children": parent.children[start : start + PART_CHILDREN]})


STAGE = Stage("chunk", OCR_DONE, VERSION, counts="visible", project=project, react=react, batch=8, output=CHUNKED)
