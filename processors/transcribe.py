"""Bytes to Markdown with places. Projects the document and its revisions; here alone the latest order decides."""

from __future__ import annotations

import gzip
import json
import textwrap
from collections.abc import Iterable, Sequence

from engines.repetition import count_repeated
from processors.outcomes import amended, indexed, removed, superseded
from schemas.events import AmendmentAccepted, DocumentAccepted, DocumentRemoved, DocumentTranscribed, Fact
from schemas.ids import canonical_json, sha256_hex
from schemas.ports.bundle import Ports, blob_key
from schemas.ports.engines import Blobs, File, ParsePlan
from schemas.ports.ledger import Claim, MemoKey
from schemas.rows import AmendmentRow, DocumentRow, Row, WithdrawalRow
from schemas.values import BlobRef, DocumentFields, Notice, Origin, Transcript
from streams.memo import memo_key, remembered
from streams.stage import Counted, Stage, Statement
from streams.topics import ACCEPTED, OCR_DONE

VERSION = 2
TITLE_CHARACTERS = 80
INLINE_BYTES = 120_000
INLINE_BLOCKS = 2_000
"""A transcript with more of either lies in a blob, so that the event stays under the log's limit."""


def project(fact: Fact[DocumentAccepted | AmendmentAccepted | DocumentRemoved]) -> Iterable[Row]:
    data, order = fact.data, tuple(fact.data.order)
    if isinstance(data, DocumentRemoved):
        yield WithdrawalRow(
            document_id=data.document_id,
            order=order,
            tenant=data.tenant,
            external_id=data.external_id,
            source=data.origin.source,
            event_id=data.origin.event_id,
            accepted_id=data.origin.accepted_id,
            received_at=data.received_at,
            reason=data.reason,
            numbered=data.numbered,
        )
        return
    if isinstance(data, AmendmentAccepted):
        yield AmendmentRow(data.document_id, order, data.tenant, data.said(), data.origin.accepted_id, data.received_at)
        return
    yield DocumentRow(
        document_id=data.document_id,
        order=order,
        tenant=data.tenant,
        external_id=data.external_id,
        source=data.origin.source,
        source_uri=data.source_uri,
        filename=data.filename,
        media_type=data.media_type,
        title=data.title,
        language=data.language,
        collection=data.collection,
        tags=tuple(data.tags),
        metadata=data.metadata,
        document_date=data.document_date,
        content_sha256=data.blob.sha256,
        blob=data.blob,
        event_id=data.origin.event_id,
        accepted_id=data.origin.accepted_id,
        received_at=data.received_at,
        numbered=data.numbered,
        readers=None if data.readers is None else tuple(data.readers),
    )


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    ended = [await _ending_or_text(item, ports) for item in counted]
    return ended + [await _revived(item, item.revived, ports) for item in counted if item.revived]


async def _ending_or_text(item: Counted, ports: Ports) -> Statement:
    if item.claim is Claim.SUPERSEDED:
        return superseded(item)
    if isinstance(item.fact.data, DocumentRemoved):
        return removed(item)
    if isinstance(item.fact.data, AmendmentAccepted):
        return amended(item)
    if item.unchanged:
        return indexed(item, chunks=item.flip.chunks if item.flip else 0, code="UNCHANGED")
    return Statement(item.fact, await _transcribed(_retitled(item.fact.data, item), ports))


async def _revived(item: Counted, row: DocumentRow, ports: Ports) -> Statement:
    """The text of a revision that needed none of its own until what it lived on was withdrawn. Its producer was told long ago."""
    origin = Origin(accepted_id=row.accepted_id, event_id=row.event_id, source=row.source, external_id=row.external_id)
    said = {name: getattr(row, name) for name in DocumentFields.model_fields}
    said |= {"tenant": row.tenant, "document_id": row.document_id, "order": row.order, "external_id": row.external_id, "received_at": row.received_at}
    return Statement(item.fact, await _transcribed(_retitled(DocumentAccepted(**said, origin=origin, blob=row.blob, payload_sha256=""), item), ports))


def _retitled(data: DocumentAccepted, item: Counted) -> DocumentAccepted:
    return data.model_copy(update={"title": item.title}) if item.title else data


async def _transcribed(data: DocumentAccepted, ports: Ports) -> DocumentTranscribed:
    async with ports.blobs.local(data.blob.key) as path:
        file = File(path, data.filename, data.media_type, data.blob.size, data.title, data.language)
        plan = await ports.parser.plan(file)
        parts = [await _part(data, file, plan, part, ports) for part in plan.parts]
        transcript = ports.parser.assemble(file, plan, parts)
    language = data.language or transcript.language or ports.languages.detect(transcript.markdown[:20_000])
    transcript = transcript.model_copy(update={"language": language, "warnings": [*plan.notices, *_doubts(transcript)]})
    inline = len(transcript.markdown.encode()) <= INLINE_BYTES and len(transcript.blocks) <= INLINE_BLOCKS
    return DocumentTranscribed(
        tenant=data.tenant,
        document_id=data.document_id,
        order=data.order,
        origin=data.origin,
        title=data.title or transcript.title or data.filename or data.external_id or _first_words(transcript.markdown),
        language=language,
        media_type=plan.media_type,
        content_sha256=data.blob.sha256,
        text_sha256=sha256_hex(transcript.markdown.encode()),
        characters=len(transcript.markdown),
        pages=transcript.pages,
        transcript=transcript if inline else None,
        blob=None if inline else await _stored(transcript, data, ports),
        warnings=transcript.warnings,
    )


def part_key(data: DocumentAccepted, file: File, plan: ParsePlan, part: str, engine: str) -> MemoKey:
    """What a parser of this fingerprint is asked about one part of a document."""
    question = canonical_json({"sha256": data.blob.sha256, "name": file.name, "media_type": plan.media_type, "part": part})
    return memo_key(data.tenant, data.document_id, engine, question)


async def _part(data: DocumentAccepted, file: File, plan: ParsePlan, part: str, ports: Ports) -> bytes:
    """One page range, remembered: a rebalance in the middle of a long scan resumes here."""

    async def ask(_: list[int]) -> list[bytes]:
        return [await ports.parser.parse(file, plan, part)]

    key = part_key(data, file, plan, part, ports.parser.fingerprint)
    return (await remembered(ports.memo, [key], ask))[0]


def _doubts(transcript: Transcript) -> list[Notice]:
    notices = list(transcript.warnings)
    if not transcript.markdown.strip():
        notices.append(Notice(code="NO_TEXT", detail="no text was found in this document; it can be listed but not searched"))
    if repeated := count_repeated(transcript.markdown):
        notices.append(Notice(code="REPEATED_TEXT", detail=f"about {repeated:,} characters repeat the same few; each such passage is indexed once"))
    return notices


def _first_words(markdown: str) -> str | None:
    """A name for a text that came without one, from its first line."""
    line = next((words for words in markdown.split("\n", 50) if any(char.isalnum() for char in words)), "").strip("#>*-|_ ")
    return textwrap.shorten(line[:1000], TITLE_CHARACTERS, placeholder=" …") or None


async def _stored(transcript: Transcript, data: DocumentAccepted, ports: Ports) -> BlobRef:
    packed = gzip.compress(transcript.model_dump_json().encode(), mtime=0)
    return await ports.blobs.put(blob_key(data.tenant, data.document_id, sha256_hex(packed)), packed, media_type="application/gzip")


async def transcript_of(data: DocumentTranscribed, blobs: Blobs) -> Transcript:
    """The transcript of a fact, wherever it lies."""
    if data.transcript is not None:
        return data.transcript
    assert data.blob is not None
    return Transcript.model_validate(json.loads(gzip.decompress(await blobs.get(data.blob.key))))


STAGE = Stage("transcribe", ACCEPTED, VERSION, counts="latest", project=project, react=react, batch=1, deadline_s=6 * 3600, output=OCR_DONE)
