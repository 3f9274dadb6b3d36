"""What is compared at each hop. Pure: evidence in, a verdict with its reason out."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from retrieval.kept import text_hash
from retrieval.lineage.reading import Bytes, Found
from schemas.events import ChunksEmbedded, DocumentAccepted, DocumentChunked, DocumentReceived, DocumentTranscribed, Fact
from schemas.ids import received_id, sha256_hex
from schemas.lineage import Hop, HopName
from schemas.ports.lineage import RevisionRow, StoredChunk
from schemas.questions import Citation
from schemas.runs import PastChunk
from schemas.values import ChildChunk, ParentChunk, Span, Transcript

Fault = str | None


@dataclass(frozen=True, slots=True)
class Quote:
    """What a citation says that the characters around `[char_start, char_end)` are."""

    text: str
    char_start: int
    char_end: int

    def stands_in(self, markdown: str) -> bool:
        """Spans may leave out its first and last characters."""
        return self.text in markdown[max(0, self.char_end - len(self.text)) : self.char_start + len(self.text)]


def verdict(name: HopName, found: Found, faults: Iterable[Fault], said: str, sha256: str | None = None) -> Hop:
    """False with the first fault; null where the record is gone by right."""
    if found.problem or found.fact is None:
        return Hop(name=name, place=found.place, verified=False if found.problem else None, detail=found.problem or found.gone or "", event=found.event)
    fault = next((fault for fault in faults if fault), None)
    return Hop(name=name, place=found.place, verified=fault is None, detail=fault or said, event=found.event, sha256=sha256)


def chunk_hop(place: str, text: str | None, read: PastChunk, citation: Citation) -> Hop:
    """The stored text of a chunk: it is what the answer read, and holds the quote; what the citation says of its place is what the chunk's record says."""
    if text is None:
        return Hop(name="chunk", place=place, verified=False, detail="the chunk's text with the recorded hash is in no table: it was altered or lost")
    found = text_hash(text)
    faults = (
        _unless(found == read.text_sha256, f"its text has the hash {found}, the answer was read from {read.text_sha256}"),
        _unless(citation.quote in text, "its text does not hold the quote"),
        _unless(_within(citation.spans, read), "the citation names a page or a box that the chunk is not on"),
    )
    fault = next((fault for fault in faults if fault), None)
    return Hop(
        name="chunk", place=place, verified=fault is None, detail=fault or "its text is what the answer was read from, and holds the quote", sha256=found
    )


def _within(spans: Sequence[Span], read: PastChunk) -> bool:
    """Each where the chunk is, or bare characters."""
    places = [_place(Span.model_validate(span)) for span in read.spans]
    return all(_place(span) in (*places, _place(Span(char_start=0, char_end=0))) for span in spans)


def _place(span: Span) -> tuple[Any, ...]:
    return span.page, span.box, span.element, span.sheet, span.cells, span.start_s, span.end_s


def chunked_hop(found: Found, fact_id: UUID | None, cause: Fact[Any] | None, chunk: tuple[PastChunk, str] | None, transcript: Transcript | None) -> Hop:
    """A part of the chunks: the chunk in question (as it was read, and its stored text) is in it at the same place, and every text in it stands at its place
    in the Markdown."""
    data = found.fact.data if found.fact else None
    if not isinstance(data, DocumentChunked):
        return verdict("chunked", found, [_type_fault(found)], "")
    child = next((child for child in children(data) if chunk and child.id == chunk[0].id), None)
    faults = [
        identity_fault(found, fact_id),
        cause_fault(found, cause),
        "the chunk is not in this part" if chunk and child is None else None,
        "the chunk's text differs from the one in the table" if chunk and child and stored(child.text) != chunk[1] else None,
        _moved(child, chunk[0]) if chunk and child else None,
        *(_misplaced(piece, transcript) for piece in pieces(data)),
    ]
    said = f"part {data.part} of {data.parts}, {len(list(children(data)))} chunks" + (", each where it says in the Markdown" if transcript else "")
    return verdict("chunked", found, faults, said, text_hash(child.text) if child else None)


def embedded_hop(found: Found, fact_id: UUID | None, causes: Sequence[Fact[Any]], chunk: tuple[UUID, StoredChunk] | None) -> Hop:
    data = found.fact.data if found.fact else None
    if not isinstance(data, ChunksEmbedded):
        return verdict("embedded", found, [_type_fault(found)], "")
    of_chunk = next((one for one in data.vectors if chunk and one.chunk_id == chunk[0]), None)
    row = chunk[1].vector if chunk else None
    faults = [
        identity_fault(found, fact_id),
        None if not causes or any(found.fact and found.fact.causation_id == cause.id for cause in causes) else "it follows from none of the revision's parts",
        "the vector differs from the one in the table" if of_chunk and row is not None and base64.b64decode(of_chunk.vector) != row else None,
    ]
    return verdict("embedded", found, faults, f"part {data.part} of {data.parts}, {len(data.vectors)} vectors of {data.dimension} by {data.model}")


def transcribed_hop(found: Found, row: RevisionRow, fact_id: UUID | None, cause: Fact[Any] | None, transcript: Transcript | None, quote: Quote | None) -> Hop:
    data = found.fact.data if found.fact else None
    if not isinstance(data, DocumentTranscribed):
        return verdict("transcribed", found, [_type_fault(found)], "")
    hashed = text_hash(transcript.markdown) if transcript else None
    faults = [
        identity_fault(found, fact_id),
        # A revision may be taken up again when another one is withdrawn: then that is the cause, and its origin still names the accepted event.
        cause_fault(found, cause) if data.origin.accepted_id != row.accepted_id else None,
        _unless(hashed in (None, data.text_sha256), f"its Markdown has the hash {hashed}, not {data.text_sha256}"),
        _unless(data.content_sha256 == row.content_sha256, f"it was made of bytes with the hash {data.content_sha256}"),
        _unless(row.text_sha256 in (None, data.text_sha256), f"table revision_texts has the text hash {row.text_sha256}"),
        _unless(transcript is None or row.markdown is None or stored(transcript.markdown) == row.markdown, "table revision_texts holds another text"),
        _unless(transcript is None or quote is None or quote.stands_in(stored(transcript.markdown)), "its Markdown does not hold the quote at its place"),
    ]
    return verdict("transcribed", found, faults, f"{data.characters} characters of Markdown", data.text_sha256)


def text_hop(read: Bytes) -> Hop:
    """Where the transcript lies in a blob."""
    return blob_verdict("text", read, "the transcript, by its hash")


def accepted_hop(found: Found, row: RevisionRow, cause: Fact[Any] | None) -> Hop:
    data = found.fact.data if found.fact else None
    if not isinstance(data, DocumentAccepted):
        return verdict("accepted", found, [_type_fault(found)], "")
    faults = [
        _unless(data.origin.accepted_id == row.accepted_id, f"another event stands there: of {data.origin.accepted_id}, not {row.accepted_id}"),
        cause_fault(found, cause),
        _unless(tuple(data.order) == row.order, f"its order is {data.order}"),
        _unless(data.blob.sha256 == row.content_sha256, f"it names bytes with the hash {data.blob.sha256}, the table {row.content_sha256}"),
    ]
    return verdict("accepted", found, faults, f"revision {row.revision}: the bytes are pinned under {data.blob.key}", data.blob.sha256)


def received_hop(found: Found, row: RevisionRow, accepted: Fact[Any] | None) -> Hop:
    fact = found.fact
    if fact is not None and not isinstance(fact.data, DocumentReceived):
        return verdict("received", found, [_type_fault(found)], "")
    payload = accepted.data.payload_sha256 if accepted else None
    faults = [
        identity_fault(found, received_id(row.tenant, row.source, row.event_id)),
        _unless(payload is None or fact is None or fact.payload_sha256 == payload, "its payload is not the one that the door accepted"),
    ]
    return verdict("received", found, faults, f"as {row.source} sent it, under its id {row.event_id}", fact.payload_sha256 if fact else None)


def blob_verdict(name: HopName, read: Bytes, said: str) -> Hop:
    if read.problem or read.data is None:
        return Hop(name=name, place=read.place, verified=False if read.problem else None, detail=read.problem or read.gone or "")
    return Hop(name=name, place=read.place, verified=True, detail=f"{len(read.data)} bytes: {said}", sha256=sha256_hex(read.data))


def identity_fault(found: Found, expected: UUID | None) -> Fault:
    return None if expected is None or found.fact is None or found.fact.id == expected else f"another event stands there: {found.fact.id}, not {expected}"


def cause_fault(found: Found, cause: Fact[Any] | None) -> Fault:
    if cause is None or found.fact is None or found.fact.causation_id == cause.id:
        return None
    return f"it says that it follows from {found.fact.causation_id}, not from {cause.id}"


def pieces(data: DocumentChunked) -> Iterable[ParentChunk | ChildChunk]:
    for parent in data.parents:
        yield parent
        yield from parent.children


def children(data: DocumentChunked) -> Iterable[ChildChunk]:
    return (child for parent in data.parents for child in parent.children)


def _misplaced(piece: ParentChunk | ChildChunk, transcript: Transcript | None) -> Fault:
    if transcript is None or transcript.markdown[piece.char_start : piece.char_end] == piece.text:
        return None
    return f"the text of {piece.id} is not what stands at [{piece.char_start}, {piece.char_end}) of the Markdown"


def _moved(child: ChildChunk, read: PastChunk) -> Fault:
    """Pages, boxes, cells and characters as the answer was read from them."""
    same = (child.char_start, child.char_end, child.spans) == (read.char_start, read.char_end, [Span.model_validate(span) for span in read.spans])
    return _unless(same, f"the chunk stands at [{child.char_start}, {child.char_end}){_pages(child.spans)}, and was read as from elsewhere")


def _pages(spans: Sequence[Span]) -> str:
    pages = sorted({span.page for span in spans if span.page is not None})
    return f" on page {', '.join(map(str, pages))}" if pages else ""


def _type_fault(found: Found) -> Fault:
    return f"an event of another type stands there: {found.fact.data.event_type()}" if found.fact else None


def _unless(holds: bool, fault: str) -> Fault:
    return None if holds else fault


def stored(text: str) -> str:
    """As the tables keep it: no NUL."""
    return text.replace("\0", "\ufffd")
