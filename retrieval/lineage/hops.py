"""What is compared at each hop. Pure: evidence in, a verdict with its reason out."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from retrieval.lineage.reading import Bytes, Found
from schemas.events import ChunksEmbedded, DocumentAccepted, DocumentChunked, DocumentReceived, DocumentTranscribed, Fact
from schemas.ids import received_id, sha256_hex
from schemas.lineage import Hop, HopName
from schemas.ports.lineage import RevisionRow, StoredChunk
from schemas.values import ChildChunk, ParentChunk, Transcript

Fault = str | None


def verdict(name: HopName, found: Found, faults: Iterable[Fault], said: str, sha256: str | None = None) -> Hop:
    """False with the first fault; null where the record is gone by right."""
    if found.problem or found.fact is None:
        return Hop(name=name, place=found.place, verified=False if found.problem else None, detail=found.problem or found.gone or "", event=found.event)
    fault = next((fault for fault in faults if fault), None)
    return Hop(name=name, place=found.place, verified=fault is None, detail=fault or said, event=found.event, sha256=sha256)


def chunk_hop(place: str, text: str | None, expected_sha256: str | None, quote: str) -> Hop:
    """The stored text of a chunk: it is what the answer read, and holds the quote."""
    if text is None:
        return Hop(name="chunk", place=place, verified=False, detail="the chunk's text with the recorded hash is in no table: it was altered or lost")
    found = text_hash(text)
    if expected_sha256 is not None and found != expected_sha256:
        return Hop(name="chunk", place=place, verified=False, detail=f"its text has the hash {found}, the answer was read from {expected_sha256}", sha256=found)
    if quote not in text:
        return Hop(name="chunk", place=place, verified=False, detail="its text does not hold the quote", sha256=found)
    return Hop(name="chunk", place=place, verified=True, detail="its text is what the answer was read from, and holds the quote", sha256=found)


def chunked_hop(found: Found, fact_id: UUID | None, cause: Fact[Any] | None, chunk: tuple[UUID, str] | None, transcript: Transcript | None) -> Hop:
    """A part of the chunks: the chunk in question (id and stored text) is in it, and every text in it stands at its place in the Markdown."""
    data = found.fact.data if found.fact else None
    if not isinstance(data, DocumentChunked):
        return verdict("chunked", found, [_type_fault(found)], "")
    child = next((child for child in children(data) if chunk and child.id == chunk[0]), None)
    faults = [
        identity_fault(found, fact_id),
        cause_fault(found, cause),
        "the chunk is not in this part" if chunk and child is None else None,
        "the chunk's text differs from the one in the table" if chunk and child and stored(child.text) != chunk[1] else None,
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


def transcribed_hop(found: Found, row: RevisionRow, fact_id: UUID | None, cause: Fact[Any] | None, transcript: Transcript | None, quote: str | None) -> Hop:
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
        _unless(transcript is None or quote is None or quote in stored(transcript.markdown), "its Markdown does not hold the quote"),
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


def _type_fault(found: Found) -> Fault:
    return f"an event of another type stands there: {found.fact.data.event_type()}" if found.fact else None


def _unless(holds: bool, fault: str) -> Fault:
    return None if holds else fault


def stored(text: str) -> str:
    """As the tables keep it: no NUL."""
    return text.replace("\0", "\ufffd")


def text_hash(text: str) -> str:
    return sha256_hex(text.encode())
