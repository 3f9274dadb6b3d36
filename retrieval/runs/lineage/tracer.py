"""Trace an answer, a citation or a document back to the uploaded bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from retrieval.runs.lineage import hops
from retrieval.runs.lineage.evidence_reader import (
    BlobEvidence,
    EventEvidence,
    read_blob,
    read_event,
    read_transcript,
)
from retrieval.runs.recorded_run import parse_run
from retrieval.runs.run_record import hash_text
from schemas.citations import Citation
from schemas.errors import InvalidRequest, NotFound, unknown_document_error
from schemas.events import (
    ChunksEmbedded,
    DocumentAccepted,
    DocumentChunked,
    DocumentTranscribed,
)
from schemas.lineage import CitationLineage, DocumentLineage, Hop, RunLineage, list_broken_hops
from schemas.ports.engines import BlobStore
from schemas.ports.lineage import (
    LineageStore,
    PartPosition,
    RecordedTexts,
    RevisionLineage,
    StoredChunk,
)
from schemas.ports.log import EventLog
from schemas.principals import Principal
from schemas.questions import QueryResponse
from schemas.run_records import RecordedChunk
from schemas.topics import Position
from schemas.values import Transcript
from streams.codec import Codec


@dataclass(frozen=True, slots=True)
class RevisionEvidence:
    """All evidence for one revision: its row, its events, its text, its bytes."""

    row: RevisionLineage
    received: EventEvidence
    accepted: EventEvidence
    transcribed: EventEvidence | None
    chunked: Sequence[EventEvidence]
    embedded: Sequence[EventEvidence]
    transcript: Transcript | None
    text_blob: BlobEvidence | None
    content: BlobEvidence

    @property
    def verified_transcript(self) -> Transcript | None:
        """The transcript, if it matches the hash in its event: otherwise it proves nothing about
        others.
        """
        data = self.transcribed.get_data(DocumentTranscribed) if self.transcribed else None
        fits = data and self.transcript and hash_text(self.transcript.markdown) == data.text_sha256
        return self.transcript if fits else None

    def check_chunked(
        self, part: EventEvidence, chunk: tuple[RecordedChunk, str] | None = None
    ) -> Hop:
        cause = self.transcribed.event if self.transcribed else None
        return hops.check_chunked(part, cause, chunk, self.verified_transcript)

    def check_embedded(
        self, part: EventEvidence, chunk: tuple[UUID, StoredChunk] | None = None
    ) -> Hop:
        causes = [one.event for one in self.chunked if one.event]
        return hops.check_embedded(part, causes, chunk)


@dataclass(frozen=True, slots=True)
class LineageTracer:
    """Traces documents and citations.

    Every method raises NotFound for unknown ids, and TransientError when log, tables or blobs are
    unavailable.
    """

    tables: LineageStore
    texts: RecordedTexts
    log: EventLog
    codec: Codec
    blobs: BlobStore

    async def trace_document(self, caller: Principal, document_id: UUID) -> DocumentLineage:
        """Trace the visible revision, or the latest one when none is visible."""
        row = await self._fetch_revision(caller, document_id, None, None)
        evidence = await self._collect_evidence(row, row.generation)
        document_hops = [
            *_check_to_text(evidence, None),
            *map(evidence.check_chunked, evidence.chunked),
            *map(evidence.check_embedded, evidence.embedded),
        ]
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
            **_summarize(document_hops),
        )

    async def read_text(self, caller: Principal, document_id: UUID, revision: int) -> str:
        """Return the Markdown of a revision from its event in the log, as the tables store it.

        Raises NotFound with the reason if the log no longer holds it.
        """
        reason = "its position in the log is not recorded"
        position = await self.tables.fetch_text_position(caller, document_id, revision)
        if position is not None:
            evidence = await self._read_event(position)
            data = evidence.get_data(DocumentTranscribed)
            reason = evidence.removal_reason or evidence.problem or "another event is stored there"
            # The offsets of a log that was restored or recreated may be those of other documents.
            if data is not None and data.document_id == document_id:
                transcript, blob = await read_transcript(self.blobs, data)
                if transcript is not None:
                    return hops.normalize_stored_text(transcript.markdown)
                reason = (blob and blob.problem) or reason
        raise NotFound(
            f"Document {document_id} has no text of revision {revision}: {reason}.",
            remedy="Get the file of the revision, or the text without `revision`.",
        )

    async def trace_citation(
        self, caller: Principal, generation: str, citation: Citation, recorded: RecordedChunk
    ) -> CitationLineage:
        """Trace one citation. `recorded` is its chunk as the run record describes it."""
        row = await self._fetch_revision(caller, recorded.document_id, recorded.order, generation)
        evidence = await self._collect_evidence(row, generation)
        stored_chunk = await self.tables.fetch_chunk(
            generation, recorded.document_id, recorded.order, recorded.id
        )
        citation_hops = await self._trace_chunk(
            caller, generation, citation, recorded, stored_chunk, evidence
        )
        start, end = _get_span(citation, recorded)
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
            **_summarize(citation_hops),
        )

    async def _trace_chunk(
        self,
        caller: Principal,
        generation: str,
        citation: Citation,
        recorded: RecordedChunk,
        stored_chunk: StoredChunk | None,
        evidence: RevisionEvidence,
    ) -> list[Hop]:
        location = f"table child_chunks ({generation}) {recorded.id}"
        text = stored_chunk.text if stored_chunk else None
        # Its rows were removed with the revision or generation; the history may have the text.
        if stored_chunk is None:
            location = f"table chunk_history {recorded.id}"
            text = (await self.texts.fetch_texts(caller, [recorded])).get(recorded.id)
        chunk_hop = hops.check_chunk(location, text, recorded, citation)
        vectors = [
            evidence.check_embedded(part, (recorded.id, stored_chunk))
            for part in evidence.embedded
            if stored_chunk
            and (vectors_data := part.get_data(ChunksEmbedded))
            and any(vector.chunk_id == recorded.id for vector in vectors_data.vectors)
        ]
        chunked = [
            evidence.check_chunked(part, (recorded, text or ""))
            for part in evidence.chunked
            if (data := part.get_data(DocumentChunked))
            and any(child.id == recorded.id for child in hops.iterate_children(data))
        ] or [_check_missing_part(evidence, generation)]
        return [
            chunk_hop,
            *vectors,
            *chunked,
            # A citation is traced from the quote back to the bytes, a document from the bytes on.
            *reversed(
                _check_to_text(
                    evidence,
                    hops.QuotePosition(
                        citation.quote, *_get_span(citation, recorded), citation.redacted
                    ),
                )
            ),
        ]

    async def _fetch_revision(
        self,
        caller: Principal,
        document_id: UUID,
        order: Sequence[int] | None,
        generation: str | None,
    ) -> RevisionLineage:
        row = await self.tables.fetch_revision(caller, document_id, order, generation)
        if row is None:
            raise unknown_document_error(document_id)
        return row

    async def _collect_evidence(
        self, row: RevisionLineage, generation: str | None
    ) -> RevisionEvidence:
        # The tables only give the positions; the content comes from the log.
        part_positions = await self.tables.fetch_part_positions(
            row.document_id, row.order, generation
        )
        events, content = await asyncio.gather(
            asyncio.gather(
                self._read_event(row.accepted_position),
                self._read_received(row),
                *(self._read_event(part.position, part) for part in part_positions),
            ),
            read_blob(self.blobs, row.blob),
        )
        accepted, received, *parts = events
        transcribed, chunked, embedded = (
            [one for one in parts if one.part and one.part.step == step]
            for step in ("transcribed", "chunked", "embedded")
        )
        data = transcribed[0].get_data(DocumentTranscribed) if transcribed else None
        return RevisionEvidence(
            row,
            received,
            accepted,
            transcribed[0] if transcribed else None,
            chunked,
            embedded,
            *(await read_transcript(self.blobs, data) if data else (None, None)),
            content,
        )

    async def _read_event(
        self, position: Position, part: PartPosition | None = None
    ) -> EventEvidence:
        return replace(await read_event(self.log, self.codec, position), part=part)

    async def _read_received(self, row: RevisionLineage) -> EventEvidence:
        if row.received_position is None:
            return EventEvidence(
                "raw", removal_reason="its position in topic raw is no longer recorded"
            )
        evidence = await self._read_event(row.received_position)
        if not evidence.removal_reason:
            return evidence
        # Topic raw has limited retention, so a missing event is no fault there.
        reason = "expired: topic raw has limited retention"
        return replace(evidence, removal_reason=reason)


def _summarize(hops_found: list[Hop]) -> dict[str, Any]:
    """Return the fields of a lineage that its hops decide."""
    broken = list_broken_hops(hops_found)
    return {"hops": hops_found, "verified": not broken, "broken": broken}


def _check_to_text(evidence: RevisionEvidence, quote: hops.QuotePosition | None) -> list[Hop]:
    """Verify the hops from the bytes to the Markdown."""
    is_accepted = evidence.accepted.get_data(DocumentAccepted) is not None
    accepted = evidence.accepted.event if is_accepted else None
    document_hops = [
        hops.build_blob_hop("blob", evidence.content, "the uploaded bytes, by their hash"),
        hops.check_received(evidence.received, evidence.row, accepted),
        hops.check_accepted(evidence.accepted, evidence.row, evidence.received.event),
    ]
    if blob := evidence.text_blob:
        document_hops.append(hops.build_blob_hop("text", blob, "the transcript, by its hash"))
    if evidence.transcribed:
        document_hops.append(
            hops.check_transcribed(
                evidence.transcribed, evidence.row, accepted, evidence.transcript, quote
            )
        )
    else:
        document_hops.append(
            Hop(
                name="transcribed",
                place="ocr_done",
                verified=None,
                detail="the position of its text in the log is not recorded",
            )
        )
    return document_hops


def _check_missing_part(evidence: RevisionEvidence, generation: str) -> Hop:
    """Explain a chunk without a part: an unreadable part is to blame, else no part contains it.

    Null for another generation, which may have chunked the text differently.
    """
    for part in evidence.chunked:
        hop = evidence.check_chunked(part)
        if hop.verified is not True:
            return hop
    first = evidence.chunked[0].part if evidence.chunked else None
    if first is None or first.generation != generation:
        return Hop(
            name="chunked",
            place="chunked",
            verified=None,
            detail=f"the positions of the parts of generation {generation} are no longer recorded",
        )
    return Hop(
        name="chunked",
        place=", ".join(event.location for event in evidence.chunked),
        verified=False,
        detail="no part of the revision contains the chunk",
    )


def _get_span(citation: Citation, recorded: RecordedChunk) -> tuple[int, int]:
    starts = [span.char_start for span in citation.spans]
    ends = [span.char_end for span in citation.spans]
    return min(starts, default=recorded.char_start), max(ends, default=recorded.char_end)


async def trace_run(
    tracer: LineageTracer,
    caller: Principal,
    run: Mapping[str, Any],
    *,
    sentence: int | None,
    citation: int | None,
) -> RunLineage:
    """Trace a row of table `runs`. Sentences count from 1.

    Raises NotFound when the sentence, the citation or the record does not exist.
    """
    record = parse_run(run)
    response = record.response
    if not isinstance(response, QueryResponse):
        raise InvalidRequest(
            f"Run {response.run_id} is a search and has no answer.",
            remedy="Use the run of a query, or a document.",
        )
    chunks_by_id = {chunk.id: chunk for chunk in record.run_record.chunks}
    draft = record.run_record.draft
    sentences = {
        number: set(citation_numbers)
        for number, citation_numbers in enumerate(draft.sentence_citations if draft else (), 1)
    }
    citation_lineages = [
        await tracer.trace_citation(
            caller, response.generation, chosen, chunks_by_id[chosen.chunk_id]
        )
        for chosen in choose_citations(response, sentences, sentence, citation)
    ]
    faults = [fault for citation_lineage in citation_lineages for fault in citation_lineage.broken]
    return RunLineage(
        run_id=response.run_id,
        question=record.run_record.question,
        generation=response.generation,
        answered_at=datetime.fromisoformat(record.answered_at) if record.answered_at else None,
        answer=response.answer,
        citations=citation_lineages,
        verified=not faults,
        broken=list(dict.fromkeys(faults)),
    )


def choose_citations(
    response: QueryResponse,
    sentences: Mapping[int, set[int]],
    sentence: int | None,
    citation: int | None,
) -> Sequence[Citation]:
    citation_numbers = {candidate.n for candidate in response.citations}
    if sentence is not None:
        citation_numbers = sentences.get(sentence, set())
    if citation is not None:
        citation_numbers &= {citation}
    citations = [candidate for candidate in response.citations if candidate.n in citation_numbers]
    if not citations and (sentence is not None or citation is not None):
        subject = f"sentence {sentence}" if sentence is not None else f"citation {citation}"
        raise NotFound(
            f"Run {response.run_id} has no {subject}.",
            remedy=(
                f"Choose by number, from 1: its answer has {len(sentences)} sentences and "
                f"{len(response.citations)} citations."
            ),
        )
    return citations
