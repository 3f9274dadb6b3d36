"""Convert a document's bytes to Markdown with positions.

Projects the document and its revisions. This is the only stage that compares an event with the
latest order rather than with the visible one.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from engines.chunk.chunk_builder import count_repeated_characters
from processors.outcomes import (
    make_indexed_outcome,
    make_removed_outcome,
    make_superseded_outcome,
)
from schemas.events import (
    AmendmentAccepted,
    DocumentAccepted,
    DocumentIndexed,
    DocumentRemoved,
    DocumentSuperseded,
    DocumentTranscribed,
    Event,
    RemovalCompleted,
)
from schemas.generations import CollectionProcessing
from schemas.ids import canonical_json, make_blob_key, sha256_hex
from schemas.ports.engines import BlobStore, LocalFile, ParsePlan
from schemas.ports.ledger import ClaimStatus, MemoKey, OrderingPolicy
from schemas.ports.stage_ports import StagePorts
from schemas.rows import AmendmentRow, DocumentRow, Row, WithdrawalRow, copy_row
from schemas.topics import ACCEPTED
from schemas.values import BlobRef, DocumentFields, Notice, Origin, Transcript
from streams.stage import Emission, PendingEvent, Stage, build_memo_key, memoize

VERSION = 2
MAX_TITLE_CHARS = 80
MAX_INLINE_BYTES = 120_000
MAX_INLINE_BLOCKS = 2_000
"""A transcript above either limit goes into a blob: the log limits the size of events. Raw cells
count as blocks.
"""


def project(event: Event[DocumentAccepted | AmendmentAccepted | DocumentRemoved]) -> Iterable[Row]:
    data = event.data
    fields: dict[str, Any] = {
        "order": tuple(data.order),
        "limited_to": None if data.limited_to is None else tuple(data.limited_to),
        "accepted_id": data.origin.accepted_id,
    }
    if isinstance(data, AmendmentAccepted):
        yield copy_row(AmendmentRow, data, fields=data.stated_fields(), **fields)
        return
    fields |= {"source": data.origin.source, "event_id": data.origin.event_id}
    if isinstance(data, DocumentRemoved):
        yield copy_row(WithdrawalRow, data, **fields)
        return
    yield copy_row(
        DocumentRow,
        data,
        tags=tuple(data.tags),
        content_sha256=data.blob.sha256,
        readers=None if data.readers is None else tuple(data.readers),
        **fields,
    )


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    emissions = [
        await _transcribe_or_finish(pending_event, ports) for pending_event in pending_events
    ]
    # A late withdrawal may remove the text that a later, unchanged revision shared (ADR 6).
    for pending_event in pending_events:
        if pending_event.revived_revision:
            emissions.append(
                await _transcribe_revived(pending_event, pending_event.revived_revision, ports)
            )
    return emissions


async def _transcribe_or_finish(pending_event: PendingEvent, ports: StagePorts) -> Emission:
    if pending_event.status is ClaimStatus.SUPERSEDED:
        return make_superseded_outcome(pending_event)
    if isinstance(pending_event.event.data, DocumentRemoved):
        return make_removed_outcome(pending_event)
    if isinstance(pending_event.event.data, AmendmentAccepted):
        return make_indexed_outcome(pending_event, "AMENDED")
    # The rows of the identical visible revision answer for this one too.
    if pending_event.is_unchanged:
        return make_indexed_outcome(pending_event, "UNCHANGED")
    return await _transcribe(pending_event, pending_event.event.data, ports)


async def _transcribe_revived(
    pending_event: PendingEvent, revision: DocumentRow, ports: StagePorts
) -> Emission:
    """Transcribe a revision that shared the text of an identical one, withdrawn since.

    Its outcome was published when it was accepted, so there is none now.
    """
    origin = Origin(
        accepted_id=revision.accepted_id,
        event_id=revision.event_id,
        source=revision.source,
        external_id=revision.external_id,
    )
    fields = {name: getattr(revision, name) for name in DocumentFields.model_fields}
    fields |= {
        "tenant": revision.tenant,
        "document_id": revision.document_id,
        "order": revision.order,
        "external_id": revision.external_id,
        "received_at": revision.received_at,
    }
    # Only an input of `_transcribe`, never published, so it needs no hash.
    accepted = DocumentAccepted(**fields, origin=origin, blob=revision.blob, payload_sha256="")
    return await _transcribe(pending_event, accepted, ports)


async def _transcribe(cause: PendingEvent, data: DocumentAccepted, ports: StagePorts) -> Emission:
    title = cause.amended_title or data.title
    async with ports.blobs.open_local(data.blob.key) as path:
        file = LocalFile(
            path,
            data.filename,
            data.blob.media_type or data.media_type,
            data.blob.size,
            title,
            data.language,
        )
        plan = await ports.parser.plan(file)
        parts = await _parse_parts(data, file, plan, ports)
        transcript = ports.parser.assemble(file, plan, parts)
    language = (
        data.language
        or transcript.language
        or ports.language_detector.detect(transcript.markdown[:20_000])
    )
    transcript = transcript.model_copy(
        update={"language": language, "warnings": [*plan.notices, *_collect_notices(transcript)]}
    )
    n_places = len(transcript.blocks) + sum(
        len(block.span.raw_cells or ()) for block in transcript.blocks
    )
    processing = CollectionProcessing()
    if data.collection is not None and ports.collections is not None:
        processing = await ports.collections.fetch_processing(data.tenant, data.collection)
    inline = len(transcript.markdown.encode()) <= MAX_INLINE_BYTES and n_places <= MAX_INLINE_BLOCKS
    transcribed = DocumentTranscribed(
        tenant=data.tenant,
        document_id=data.document_id,
        order=data.order,
        origin=data.origin,
        title=title
        or transcript.title
        or data.filename
        or data.external_id
        or _derive_title(transcript.markdown),
        language=language,
        media_type=plan.media_type,
        content_sha256=data.blob.sha256,
        text_sha256=sha256_hex(transcript.markdown.encode()),
        characters=len(transcript.markdown),
        pages=transcript.pages,
        document_date=transcript.document_date,
        transcript=transcript if inline else None,
        blob=None if inline else await _store_transcript(transcript, data, ports),
        warnings=transcript.warnings,
        chunk=processing.chunk,
        extract=processing.extract,
    )
    return Emission(cause.event, transcribed)


def make_part_key(
    data: DocumentAccepted, file: LocalFile, plan: ParsePlan, part: str, engine: str
) -> MemoKey:
    """Return the cache key of a part of a document for the parser with this fingerprint."""
    key_input = canonical_json(
        {"sha256": data.blob.sha256, "name": file.name, "media_type": plan.media_type, "part": part}
    )
    return build_memo_key(data.tenant, data.document_id, engine, key_input)


async def _parse_parts(
    data: DocumentAccepted, file: LocalFile, plan: ParsePlan, ports: StagePorts
) -> list[bytes]:
    progress = ports.progress
    report = progress.begin("transcribe", data.document_id, data.order) if progress else None
    parts = list[bytes]()
    for part in plan.parts:
        parts.append(await _parse_part(data, file, plan, part, ports))
        if report and plan.pages:
            await report(min(plan.pages, len(parts) * plan.part_pages), plan.pages)
    return parts


async def _parse_part(
    data: DocumentAccepted, file: LocalFile, plan: ParsePlan, part: str, ports: StagePorts
) -> bytes:
    """Parse one part, of a long scan through the cache: it resumes here after a rebalance."""
    # Parsed again in the time that storing the result takes.
    if plan.pages is None and len(plan.parts) == 1:
        return await ports.parser.parse(file, plan, part)

    async def parse(_: list[int]) -> list[bytes]:
        return [await ports.parser.parse(file, plan, part)]

    key = make_part_key(data, file, plan, part, ports.parser.fingerprint)
    return (await memoize(ports.memo, [key], parse))[0]


def _collect_notices(transcript: Transcript) -> list[Notice]:
    notices = list(transcript.warnings)
    if not transcript.markdown.strip():
        notices.append(
            Notice(
                code="NO_TEXT",
                detail="The document contains no text. It is listed but cannot be searched.",
            )
        )
    if n_repeated := count_repeated_characters(transcript.markdown):
        notices.append(
            Notice(
                code="REPEATED_TEXT",
                detail=(
                    f"About {n_repeated:,} characters are repetitions. Each repeated passage is "
                    "indexed once."
                ),
            )
        )
    return notices


def _derive_title(markdown: str) -> str | None:
    """Derive a title from the first line of text."""
    line = next(
        (words for words in markdown.split("\n", 50) if any(char.isalnum() for char in words)), ""
    ).strip("#>*-|_ ")
    # The 51st piece is the whole rest of the text, hence the limit before it is shortened.
    return textwrap.shorten(line[:1000], MAX_TITLE_CHARS, placeholder=" …") or None


async def _store_transcript(
    transcript: Transcript, data: DocumentAccepted, ports: StagePorts
) -> BlobRef:
    compressed = transcript.compress()
    return await ports.blobs.put(
        make_blob_key(data.tenant, data.document_id, sha256_hex(compressed)),
        compressed,
        media_type="application/gzip",
    )


async def load_transcript(data: DocumentTranscribed, blobs: BlobStore) -> Transcript:
    """Return the transcript of an event, inline or from its blob."""
    if data.transcript is not None:
        return data.transcript
    assert data.blob is not None
    return Transcript.decompress(await blobs.get(data.blob.key))


STAGE = Stage(
    "transcribe",
    ACCEPTED,
    VERSION,
    ordering_policy=OrderingPolicy.LATEST,
    project=project,
    react=react,
    batch_size=1,
    # One reaction parses a whole document, which may be a long scan.
    deadline_s=6 * 3600,
    emits=(DocumentTranscribed, DocumentIndexed, DocumentSuperseded, RemovalCompleted),
)
