"""Verify single hops. Pure: evidence in, a verdict with its reason out."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from retrieval.redaction import holds_quote
from retrieval.runs.lineage.evidence_reader import BlobEvidence, EventEvidence
from retrieval.runs.run_record import hash_text
from schemas.citations import Citation
from schemas.events import (
    ChunksEmbedded,
    DocumentAccepted,
    DocumentChunked,
    DocumentReceived,
    DocumentTranscribed,
    Event,
)
from schemas.ids import make_received_id, sha256_hex
from schemas.lineage import Hop, HopName, LogEvent
from schemas.ports.lineage import RevisionLineage, StoredChunk
from schemas.run_records import RecordedChunk
from schemas.values import ChildChunk, ParentChunk, Span, Transcript

Fault = str | None


@dataclass(frozen=True, slots=True)
class QuotePosition:
    """A quote and the characters around `[char_start, char_end)` where its citation places it."""

    text: str
    char_start: int
    char_end: int
    redacted: Sequence[tuple[int, int]] = ()

    def is_in(self, markdown: str) -> bool:
        """True when the Markdown holds the quote near its position.

        Spans may omit its first and last characters.
        """
        around = slice(max(0, self.char_end - len(self.text)), self.char_start + len(self.text))
        return holds_quote(markdown[around], self.text, self.redacted)


def build_hop(
    name: HopName,
    evidence: EventEvidence,
    faults: Iterable[Fault],
    summary: str,
    sha256: str | None = None,
) -> Hop:
    """Build the verdict: false with the first fault, null if the record was properly removed."""
    # Null for a record that retention or an erasure removed: only a fault breaks the chain.
    if evidence.problem or evidence.event is None:
        return Hop(
            name=name,
            place=evidence.location,
            verified=False if evidence.problem else None,
            detail=evidence.problem or evidence.removal_reason or "",
            event=evidence.log_event,
        )
    return _judge(name, evidence.location, faults, summary, sha256, evidence.log_event)


def _build_other_hop(name: HopName, evidence: EventEvidence) -> Hop:
    """Build the verdict on a place where no event of the expected type is."""
    kind = evidence.event.data.event_type() if evidence.event else ""
    return build_hop(name, evidence, [f"an event of another type is stored there: {kind}"], "")


def _judge(
    name: HopName,
    location: str,
    faults: Iterable[Fault],
    summary: str,
    sha256: str | None,
    event: LogEvent | None = None,
) -> Hop:
    fault = next((fault for fault in faults if fault), None)
    return Hop(
        name=name,
        place=location,
        verified=fault is None,
        detail=fault or summary,
        event=event,
        sha256=sha256,
    )


def check_chunk(
    location: str, text: str | None, recorded: RecordedChunk, citation: Citation
) -> Hop:
    """Verify the stored chunk.

    It must be the text that was read and hold the quote, at the recorded position.
    """
    if text is None:
        return Hop(
            name="chunk",
            place=location,
            verified=False,
            detail="no table holds a text of this chunk with the recorded hash: it was altered or "
            "lost",
        )
    text_sha256 = hash_text(text)
    # A span that names characters only has the empty location.
    locations = [
        _get_location(Span(char_start=0, char_end=0)),
        *(_get_location(Span.model_validate(span)) for span in recorded.spans),
    ]
    faults = (
        _fault_unless(
            text_sha256 == recorded.text_sha256,
            f"its text hashes to {text_sha256}, but the answer was read from "
            f"{recorded.text_sha256}",
        ),
        _fault_unless(
            holds_quote(text, citation.quote, citation.redacted),
            "its text does not contain the quote",
        ),
        _fault_unless(
            all(_get_location(span) in locations for span in citation.spans),
            "the citation names a page or box outside the chunk",
        ),
    )
    summary = "its text is the one the answer was read from and contains the quote"
    return _judge("chunk", location, faults, summary, text_sha256)


def _get_location(span: Span) -> tuple[Any, ...]:
    return span.page, span.box, span.element, span.sheet, span.cells, span.start_s, span.end_s


def check_chunked(
    evidence: EventEvidence,
    cause: Event[Any] | None,
    chunk: tuple[RecordedChunk, str] | None,
    transcript: Transcript | None,
) -> Hop:
    """Verify one part of the chunks: identity, cause and texts against their spans in the Markdown.

    With `chunk` (as recorded, and its stored text), the part must contain it at the same position.
    """
    data = evidence.get_data(DocumentChunked)
    if data is None:
        return _build_other_hop("chunked", evidence)
    child = next(
        (child for child in iterate_children(data) if chunk and child.id == chunk[0].id), None
    )
    faults = [
        _find_part_fault(evidence),
        _find_cause_fault(evidence, cause),
        "this part does not contain the chunk" if chunk and child is None else None,
        # The event holds the text as it was before storing.
        "the chunk's text differs from the one in the table"
        if chunk and child and normalize_stored_text(child.text) != chunk[1]
        else None,
        _find_position_fault(child, chunk[0]) if chunk and child else None,
        *(_find_text_fault(piece, transcript) for piece in iterate_pieces(data)),
    ]
    summary = f"part {data.part} of {data.parts}, {len(list(iterate_children(data)))} chunks" + (
        ", each at its position in the Markdown" if transcript else ""
    )
    return build_hop("chunked", evidence, faults, summary, hash_text(child.text) if child else None)


def check_embedded(
    evidence: EventEvidence,
    causes: Sequence[Event[Any]],
    chunk: tuple[UUID, StoredChunk] | None,
) -> Hop:
    data = evidence.get_data(ChunksEmbedded)
    if data is None:
        return _build_other_hop("embedded", evidence)
    vector = next((item for item in data.vectors if chunk and item.chunk_id == chunk[0]), None)
    row = chunk[1].vector if chunk else None
    faults = [
        _find_part_fault(evidence),
        None
        if not causes
        or any(evidence.event and evidence.event.causation_id == cause.id for cause in causes)
        else "its cause is none of the revision's parts",
        "the vector differs from the one in the table"
        if vector and row is not None and base64.b64decode(vector.vector) != row
        else None,
    ]
    return build_hop(
        "embedded",
        evidence,
        faults,
        f"part {data.part} of {data.parts}, {len(data.vectors)} vectors of {data.dimension} by "
        f"{data.model}",
    )


def check_transcribed(
    evidence: EventEvidence,
    row: RevisionLineage,
    cause: Event[Any] | None,
    transcript: Transcript | None,
    quote: QuotePosition | None,
) -> Hop:
    data = evidence.get_data(DocumentTranscribed)
    if data is None:
        return _build_other_hop("transcribed", evidence)
    markdown_sha256 = hash_text(transcript.markdown) if transcript else None
    faults = [
        _find_part_fault(evidence),
        # A revision reactivated by the withdrawal of another has that as its cause; its origin
        # still names the accepted event.
        _find_cause_fault(evidence, cause) if data.origin.accepted_id != row.accepted_id else None,
        _fault_unless(
            # None: the transcript could not be read, which a hop of its own reports.
            markdown_sha256 in (None, data.text_sha256),
            f"its Markdown hashes to {markdown_sha256}, not {data.text_sha256}",
        ),
        _fault_unless(
            data.content_sha256 == row.content_sha256,
            f"it was made from bytes with the hash {data.content_sha256}",
        ),
        _fault_unless(
            row.text_sha256 in (None, data.text_sha256),
            f"table revision_texts has the text hash {row.text_sha256}",
        ),
        _fault_unless(
            transcript is None
            or row.markdown is None
            or normalize_stored_text(transcript.markdown) == row.markdown,
            "table revision_texts holds another text",
        ),
        _fault_unless(
            transcript is None
            or quote is None
            or quote.is_in(normalize_stored_text(transcript.markdown)),
            "its Markdown does not contain the quote at its position",
        ),
    ]
    return build_hop(
        "transcribed",
        evidence,
        faults,
        f"{data.characters} characters of Markdown",
        data.text_sha256,
    )


def check_accepted(evidence: EventEvidence, row: RevisionLineage, cause: Event[Any] | None) -> Hop:
    data = evidence.get_data(DocumentAccepted)
    if data is None:
        return _build_other_hop("accepted", evidence)
    faults = [
        _fault_unless(
            data.origin.accepted_id == row.accepted_id,
            f"another event is stored there: of {data.origin.accepted_id}, not {row.accepted_id}",
        ),
        _find_cause_fault(evidence, cause),
        _fault_unless(tuple(data.order) == row.order, f"its order is {data.order}"),
        _fault_unless(
            data.blob.sha256 == row.content_sha256,
            f"it names bytes with the hash {data.blob.sha256}, the table {row.content_sha256}",
        ),
    ]
    return build_hop(
        "accepted",
        evidence,
        faults,
        f"revision {row.revision}: the bytes are pinned under {data.blob.key}",
        data.blob.sha256,
    )


def check_received(
    evidence: EventEvidence, row: RevisionLineage, accepted: Event[Any] | None
) -> Hop:
    event = evidence.event
    if event is not None and evidence.get_data(DocumentReceived) is None:
        return _build_other_hop("received", evidence)
    payload = accepted.data.payload_sha256 if accepted else None
    faults = [
        # The id follows from the producer's id, so another event cannot take its place.
        _find_identity_fault(evidence, make_received_id(row.tenant, row.source, row.event_id)),
        _fault_unless(
            payload is None or event is None or event.payload_sha256 == payload,
            "its payload differs from the one that ingress accepted",
        ),
    ]
    return build_hop(
        "received",
        evidence,
        faults,
        f"as {row.source} sent it, under its id {row.event_id}",
        event.payload_sha256 if event else None,
    )


def build_blob_hop(name: HopName, evidence: BlobEvidence, summary: str) -> Hop:
    if evidence.problem or evidence.data is None:
        problem = evidence.problem or "its content was not read"
        return Hop(name=name, place=evidence.location, verified=False, detail=problem)
    return Hop(
        name=name,
        place=evidence.location,
        verified=True,
        detail=f"{len(evidence.data)} bytes: {summary}",
        sha256=sha256_hex(evidence.data),
    )


def _find_part_fault(evidence: EventEvidence) -> Fault:
    return _find_identity_fault(evidence, evidence.part.event_id if evidence.part else None)


def _find_identity_fault(evidence: EventEvidence, expected: UUID | None) -> Fault:
    if expected is None or evidence.event is None or evidence.event.id == expected:
        return None
    return f"another event is stored there: {evidence.event.id}, not {expected}"


def _find_cause_fault(evidence: EventEvidence, cause: Event[Any] | None) -> Fault:
    if cause is None or evidence.event is None or evidence.event.causation_id == cause.id:
        return None
    return f"its cause is {evidence.event.causation_id}, not {cause.id}"


def iterate_pieces(data: DocumentChunked) -> Iterable[ParentChunk | ChildChunk]:
    for parent in data.parents:
        yield parent
        yield from parent.children


def iterate_children(data: DocumentChunked) -> Iterable[ChildChunk]:
    return (child for parent in data.parents for child in parent.children)


def _find_text_fault(piece: ParentChunk | ChildChunk, transcript: Transcript | None) -> Fault:
    if transcript is None or transcript.markdown[piece.char_start : piece.char_end] == piece.text:
        return None
    return (
        f"the text of {piece.id} differs from the Markdown at [{piece.char_start}, "
        f"{piece.char_end})"
    )


def _find_position_fault(child: ChildChunk, recorded: RecordedChunk) -> Fault:
    """Compare pages, boxes, cells and characters with those recorded."""
    is_same = (child.char_start, child.char_end, child.spans) == (
        recorded.char_start,
        recorded.char_end,
        [Span.model_validate(span) for span in recorded.spans],
    )
    pages = sorted({span.page for span in child.spans if span.page is not None})
    on_pages = f" on page {', '.join(map(str, pages))}" if pages else ""
    return _fault_unless(
        is_same,
        f"the chunk is at [{child.char_start}, {child.char_end}){on_pages}, but was recorded "
        "elsewhere",
    )


def _fault_unless(is_met: bool, fault: str) -> Fault:
    return None if is_met else fault


def normalize_stored_text(text: str) -> str:
    """Replace NUL, which Postgres cannot store, as the tables do."""
    return text.replace("\0", "\ufffd")
