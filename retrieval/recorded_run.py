"""A recorded run as values: its candidates, and the passages that were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from retrieval.answer.extractive import MODEL
from retrieval.passage_codec import restore_chunk, restore_parent, restore_unread_chunk
from schemas.errors import NotFound
from schemas.ports.rerun import RecordedText
from schemas.ports.search import ChunkView, ParentView
from schemas.questions import Channel, ChannelRank, QueryRequest, QueryResponse, SearchRequest, SearchResponse
from schemas.run_records import RecordedChunk, RecordedParent, RunRecord


class RecordedCandidate(BaseModel):
    """As `retrieval.run_events` records it; `rerank_score` is of its parent."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    chunk_id: UUID
    parent_id: UUID
    document_id: UUID
    channels: dict[Channel, ChannelRank]
    text_sha256: str
    parts: dict[str, float] = {}
    fused: float
    rerank_score: float | None = None

    @property
    def id(self) -> UUID:
        return self.chunk_id


@dataclass(frozen=True, slots=True)
class RecordedRun:
    request: SearchRequest
    response: SearchResponse | QueryResponse
    basis: RunRecord
    candidates: tuple[RecordedCandidate, ...]
    numbers: Mapping[str, Any]
    answered_at: str | None = None

    @property
    def is_quoted(self) -> bool:
        """Whether its sentences were taken from the passages, and no model wrote them."""
        draft = self.basis.draft
        return draft is None or draft.model == MODEL or draft.reply is None

    def get_pair_scores(self) -> dict[UUID, float]:
        return {candidate.chunk_id: candidate.parts["word_pairs"] for candidate in self.candidates if "word_pairs" in candidate.parts}

    def check_texts(self, texts: Mapping[UUID, str]) -> None:
        """Raises NotFound where a passage that was read is gone."""
        passages: list[RecordedChunk | RecordedParent] = [*self.basis.chunks, *self.basis.parents]
        missing = [passage for passage in passages if passage.id not in texts]
        if missing:
            documents = ", ".join(sorted({str(passage.document_id) for passage in missing}))
            raise NotFound(
                f"{len(missing)} passages that run {self.response.run_id} was answered from are gone, of document {documents}",
                code="PASSAGE_GONE",
                remedy="The document was erased, or its texts were lost with a generation that a rebuild did not make; the recorded answer is all there is.",
            )

    def restore_chunks(self, texts: Mapping[UUID, str]) -> dict[UUID, ChunkView]:
        """Of every candidate. One that was ranked and not read has only its text; where that is gone its hash stands for it, so that equal ones stay equal."""
        read_chunks = {chunk.id: restore_chunk(chunk, texts[chunk.id]) for chunk in self.basis.chunks}
        return {
            candidate.chunk_id: restore_unread_chunk(
                candidate.chunk_id, candidate.parent_id, candidate.document_id, texts.get(candidate.chunk_id, candidate.text_sha256)
            )
            for candidate in self.candidates
        } | read_chunks

    def restore_snapshot(self, texts: Mapping[UUID, str]) -> RecordedSnapshot:
        return RecordedSnapshot(self.basis, self.restore_chunks(texts), {parent.id: restore_parent(parent, texts[parent.id]) for parent in self.basis.parents})


class RecordedSnapshot:
    """The part of `IndexSnapshot` that is asked once everything is ranked."""

    def __init__(self, basis: RunRecord, chunks: Mapping[UUID, ChunkView], parents: Mapping[UUID, ParentView]) -> None:
        self._families = {parent.id: parent.children for parent in basis.parents}
        self._chunks, self._parents = chunks, parents

    async def fetch_parents(self, parent_ids: Sequence[UUID]) -> Mapping[UUID, ParentView]:
        return {parent_id: self._parents[parent_id] for parent_id in parent_ids if parent_id in self._parents}

    async def fetch_children(self, parent_ids: Sequence[UUID]) -> Sequence[ChunkView]:
        return [self._chunks[child] for parent_id in parent_ids for child in self._families.get(parent_id, ())]


def parse_run(run: Mapping[str, Any]) -> RecordedRun:
    """Raises NotFound for a run without its question, its answer or its basis (code RUN_INCOMPLETE), and for one of which nothing is left (RUN_ERASED)."""
    missing = [name for name in ("request", "response", "basis") if not run[name]]
    if len(missing) == 3:  # one that was only begun has its question
        remedy = "Nothing brings it back; ask again."
        raise NotFound(f"what run {run['run_id']} asked and answered was erased, with a document that it names", code="RUN_ERASED", remedy=remedy)
    if missing:
        raise NotFound(
            f"run {run['run_id']} has no {', no '.join(missing)}",
            code="RUN_INCOMPLETE",
            remedy="It is still under way, failed, or was recorded by a version that kept less.",
        )
    is_query = run["kind"] == "query"
    try:
        return RecordedRun(
            (QueryRequest if is_query else SearchRequest).model_validate(run["request"]),
            (QueryResponse if is_query else SearchResponse).model_validate(run["response"]),
            RunRecord.model_validate(run["basis"]),
            tuple(RecordedCandidate.model_validate(candidate) for candidate in run["candidates"]),
            run["numbers"],
            str(run["answered_at"]) if run.get("answered_at") else None,
        )
    except ValidationError as error:
        raise NotFound(f"run {run['run_id']} was recorded in another form: {error.error_count()} fields differ", code="RUN_INCOMPLETE") from error


def list_required_texts(run: RecordedRun) -> list[RecordedText]:
    """Each chunk and parent once."""
    passages: list[RecordedText] = [*run.basis.parents, *run.basis.chunks, *run.candidates]
    return list({passage.id: passage for passage in reversed(passages)}.values())
