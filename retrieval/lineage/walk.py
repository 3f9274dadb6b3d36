"""The walk back: from a citation, or a document, to the bytes that were uploaded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from retrieval.kept import text_hash
from retrieval.lineage import hops
from retrieval.lineage.reading import Bytes, Found, read_blob, read_fact, read_transcript
from schemas.errors import NotFound
from schemas.events import ChunksEmbedded, DocumentAccepted, DocumentChunked, DocumentTranscribed, Fact
from schemas.lineage import CitationLineage, DocumentLineage, Hop, broken
from schemas.ports.engines import Blobs
from schemas.ports.lineage import LineageTables, PartPlace, RevisionRow, StoredChunk
from schemas.ports.log import EventLog
from schemas.ports.runs import PastTexts
from schemas.principals import Principal
from schemas.questions import Citation
from schemas.runs import PastChunk
from schemas.values import Transcript
from streams.codec import Codec


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one revision: its row, its facts, its text, its bytes."""

    row: RevisionRow
    received: Found
    accepted: Found
    transcribed: tuple[PartPlace, Found] | None
    chunked: Sequence[tuple[PartPlace, Found]]
    embedded: Sequence[tuple[PartPlace, Found]]
    transcript: Transcript | None
    text_blob: Bytes | None
    content: Bytes

    @property
    def sound(self) -> Transcript | None:
        """The text, where it has the hash that its event names: only then may others be blamed for differing from it."""
        data = self.transcribed[1].fact.data if self.transcribed and self.transcribed[1].fact else None
        fits = self.transcript is not None and isinstance(data, DocumentTranscribed) and text_hash(self.transcript.markdown) == data.text_sha256
        return self.transcript if fits else None


@dataclass(frozen=True, slots=True)
class Walk:
    """Raises NotFound for what is not known, TransientError where log, tables or blobs are away."""

    tables: LineageTables
    texts: PastTexts
    log: EventLog
    codec: Codec
    blobs: Blobs

    async def document(self, caller: Principal, document_id: UUID) -> DocumentLineage:
        """Of the revision that answers, else of the latest."""
        row = await self._row(caller, document_id, None, None)
        found = await self._evidence(row, row.generation)
        walked = [*_to_text(found, None), *_chunked(found), *_embedded(found)]
        return DocumentLineage(
            document_id=document_id,
            external_id=row.external_id,
            title=row.title,
            revision=row.revision,
            order=list(row.order),
            generation=row.generation,
            source=row.source,
            event_id=row.event_id,
            content_sha256=row.content_sha256,
            hops=walked,
            verified=not broken(walked),
            broken=broken(walked),
        )

    async def citation(self, caller: Principal, generation: str, citation: Citation, read: PastChunk) -> CitationLineage:
        """`read` is the chunk as the answer's record names it."""
        row = await self._row(caller, read.document_id, read.order, generation)
        found = await self._evidence(row, generation)
        stored = await self.tables.chunk(generation, read.document_id, read.order, read.id)
        walked = await self._from_chunk(caller, generation, citation, read, stored, found)
        start, end = _between(citation, read)
        return CitationLineage(
            n=citation.n,
            quote=citation.quote,
            chunk_id=citation.chunk_id,
            document_id=citation.document_id,
            external_id=citation.external_id,
            title=citation.title,
            revision=row.revision,
            generation=generation,
            char_start=start,
            char_end=end,
            pages=citation.pages,
            spans=citation.spans,
            content_sha256=row.content_sha256,
            hops=walked,
            verified=not broken(walked),
            broken=broken(walked),
        )

    async def _from_chunk(
        self, caller: Principal, generation: str, citation: Citation, read: PastChunk, stored: StoredChunk | None, found: Evidence
    ) -> list[Hop]:
        place, text = f"table child_chunks ({generation}) {read.id}", stored.text if stored else None
        if stored is None:
            place, text = f"table chunk_history {read.id}", (await self.texts.find(caller, [read])).get(read.id)
        first = hops.chunk_hop(place, text, read, citation)
        vectors = [_embedded_hop(found, one, (read.id, stored)) for one in found.embedded if stored and _holds_vector(one[1], read.id)]
        parts = [one for one in found.chunked if _holds(one[1], read.id)]
        wanted = (read, text if text is not None else "")
        chunked = [_chunked_hop(found, one, wanted) for one in parts] or [_lost_part(found, generation)]
        return [first, *vectors, *chunked, *reversed(_to_text(found, hops.Quote(citation.quote, *_between(citation, read))))]

    async def _row(self, caller: Principal, document_id: UUID, order: Sequence[int] | None, generation: str | None) -> RevisionRow:
        row = await self.tables.revision(caller, document_id, order, generation)
        if row is None:
            raise NotFound(f"no document {document_id}", remedy="It may have been erased; `anabranch documents list` shows those that are there.")
        return row

    async def _evidence(self, row: RevisionRow, generation: str | None) -> Evidence:
        places = await self.tables.places(row.document_id, row.order, generation)
        accepted, received, content, *facts = await asyncio.gather(
            self._fact(row.accepted), self._received(row), read_blob(self.blobs, row.blob), *(self._fact(one.position) for one in places)
        )
        assert isinstance(accepted, Found) and isinstance(received, Found) and isinstance(content, Bytes)
        pairs = [(place, fact) for place, fact in zip(places, facts, strict=True) if isinstance(fact, Found)]
        steps = {step: [pair for pair in pairs if pair[0].step == step] for step in ("transcribed", "chunked", "embedded")}
        transcribed = steps["transcribed"][0] if steps["transcribed"] else None
        transcript, text_blob = await self._text(transcribed[1]) if transcribed else (None, None)
        return Evidence(row, received, accepted, transcribed, steps["chunked"], steps["embedded"], transcript, text_blob, content)

    async def _fact(self, position: Any) -> Found:
        return await read_fact(self.log, self.codec, position)

    async def _received(self, row: RevisionRow) -> Found:
        if row.received is None:
            return Found("raw", gone="where the door read it is no longer known")
        found = await self._fact(row.received)
        return Found(found.place, gone="gone: topic raw keeps its records for a time only") if found.gone else found

    async def _text(self, found: Found) -> tuple[Transcript | None, Bytes | None]:
        data = found.fact.data if found.fact else None
        return await read_transcript(self.blobs, data) if isinstance(data, DocumentTranscribed) else (None, None)


def _to_text(found: Evidence, quote: hops.Quote | None) -> list[Hop]:
    """From the bytes to the Markdown."""
    accepted = found.accepted.fact if found.accepted.fact and isinstance(found.accepted.fact.data, DocumentAccepted) else None
    walked = [
        hops.blob_verdict("blob", found.content, "the uploaded bytes, by their hash"),
        hops.received_hop(found.received, found.row, accepted),
        hops.accepted_hop(found.accepted, found.row, found.received.fact),
    ]
    walked += [hops.text_hop(found.text_blob)] if found.text_blob else []
    if found.transcribed:
        place, fact = found.transcribed
        walked.append(hops.transcribed_hop(fact, found.row, place.fact_id, accepted, found.transcript, quote))
    else:
        walked.append(Hop(name="transcribed", place="ocr_done", verified=None, detail="no table knows where its text stands in the log"))
    return walked


def _chunked(found: Evidence) -> list[Hop]:
    return [_chunked_hop(found, one, None) for one in found.chunked]


def _embedded(found: Evidence) -> list[Hop]:
    return [_embedded_hop(found, one, None) for one in found.embedded]


def _chunked_hop(found: Evidence, one: tuple[PartPlace, Found], chunk: tuple[PastChunk, str] | None) -> Hop:
    return hops.chunked_hop(one[1], one[0].fact_id, _fact_of(found.transcribed), chunk, found.sound)


def _embedded_hop(found: Evidence, one: tuple[PartPlace, Found], chunk: tuple[UUID, StoredChunk] | None) -> Hop:
    return hops.embedded_hop(one[1], one[0].fact_id, [fact for pair in found.chunked if (fact := _fact_of(pair))], chunk)


def _lost_part(found: Evidence, generation: str) -> Hop:
    """The part that should hold the chunk: one that cannot be read is to blame, else none holds it. Another generation may have cut the text otherwise."""
    for one in found.chunked:
        hop = _chunked_hop(found, one, None)
        if hop.verified is not True:
            return hop
    if not found.chunked or found.chunked[0][0].generation != generation:
        return Hop(
            name="chunked", place="chunked", verified=None, detail=f"no table knows any more where the parts of generation {generation} stand in the log"
        )
    return Hop(name="chunked", place=_places(found.chunked), verified=False, detail="no part of the revision holds the chunk")


def _places(parts: Sequence[tuple[PartPlace, Found]]) -> str:
    return ", ".join(found.place for _, found in parts)


def _fact_of(one: tuple[PartPlace, Found] | None) -> Fact[Any] | None:
    return one[1].fact if one else None


def _holds(found: Found, chunk_id: UUID) -> bool:
    data = found.fact.data if found.fact else None
    return isinstance(data, DocumentChunked) and any(child.id == chunk_id for child in hops.children(data))


def _holds_vector(found: Found, chunk_id: UUID) -> bool:
    data = found.fact.data if found.fact else None
    return isinstance(data, ChunksEmbedded) and any(one.chunk_id == chunk_id for one in data.vectors)


def _between(citation: Citation, read: PastChunk) -> tuple[int, int]:
    starts, ends = [span.char_start for span in citation.spans], [span.char_end for span in citation.spans]
    return min(starts, default=read.char_start), max(ends, default=read.char_end)
