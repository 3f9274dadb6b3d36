"""A recorded run as values: its candidates, and the passages that were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from retrieval.answer.extractive import MODEL
from retrieval.kept import read_chunk, read_parent, unread_chunk
from schemas.errors import NotFound
from schemas.ports.runs import PastText
from schemas.ports.search import ChunkView, ParentView
from schemas.questions import Channel, ChannelPlace, QueryRequest, QueryResponse, SearchRequest, SearchResponse
from schemas.runs import Basis, PastChunk, PastParent


class Candidate(BaseModel):
    """As `retrieval.runs` records it; `rerank_score` is of its parent."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    chunk_id: UUID
    parent_id: UUID
    document_id: UUID
    channels: dict[Channel, ChannelPlace]
    text_sha256: str
    parts: dict[str, float] = {}
    fused: float
    rerank_score: float | None = None

    @property
    def id(self) -> UUID:
        return self.chunk_id


@dataclass(frozen=True, slots=True)
class Past:
    request: SearchRequest
    response: SearchResponse | QueryResponse
    basis: Basis
    candidates: tuple[Candidate, ...]
    numbers: Mapping[str, Any]
    answered_at: str | None = None

    @property
    def is_quoted(self) -> bool:
        """Whether its sentences were taken from the passages, and no model wrote them."""
        draft = self.basis.draft
        return draft is None or draft.model == MODEL or draft.reply is None

    def word_pairs(self) -> dict[UUID, float]:
        return {one.chunk_id: one.parts["word_pairs"] for one in self.candidates if "word_pairs" in one.parts}

    def check_read(self, texts: Mapping[UUID, str]) -> None:
        """Raises NotFound where a passage that was read is gone."""
        read: list[PastChunk | PastParent] = [*self.basis.chunks, *self.basis.parents]
        gone = [one for one in read if one.id not in texts]
        if gone:
            documents = ", ".join(sorted({str(one.document_id) for one in gone}))
            raise NotFound(
                f"{len(gone)} passages that run {self.response.run_id} was answered from are gone, of document {documents}",
                code="PASSAGE_GONE",
                remedy="The document was erased, or its texts were lost with a generation that a rebuild did not make; the recorded answer is all there is.",
            )

    def chunk_views(self, texts: Mapping[UUID, str]) -> dict[UUID, ChunkView]:
        """Of every candidate. One that was ranked and not read has only its text; where that is gone its hash stands for it, so that equal ones stay equal."""
        read = {chunk.id: read_chunk(chunk, texts[chunk.id]) for chunk in self.basis.chunks}
        return {
            one.chunk_id: unread_chunk(one.chunk_id, one.parent_id, one.document_id, texts.get(one.chunk_id, one.text_sha256)) for one in self.candidates
        } | read

    def snapshot(self, texts: Mapping[UUID, str]) -> PastSnapshot:
        return PastSnapshot(self.basis, self.chunk_views(texts), {one.id: read_parent(one, texts[one.id]) for one in self.basis.parents})


class PastSnapshot:
    """The part of `Snapshot` that is asked once everything is ranked."""

    def __init__(self, basis: Basis, chunks: Mapping[UUID, ChunkView], parents: Mapping[UUID, ParentView]) -> None:
        self._families = {parent.id: parent.children for parent in basis.parents}
        self._chunks, self._parents = chunks, parents

    async def parents(self, ids: Sequence[UUID]) -> Mapping[UUID, ParentView]:
        return {one: self._parents[one] for one in ids if one in self._parents}

    async def children(self, parents: Sequence[UUID]) -> Sequence[ChunkView]:
        return [self._chunks[child] for parent in parents for child in self._families.get(parent, ())]


def past_of(run: Mapping[str, Any]) -> Past:
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
    query = run["kind"] == "query"
    try:
        return Past(
            (QueryRequest if query else SearchRequest).model_validate(run["request"]),
            (QueryResponse if query else SearchResponse).model_validate(run["response"]),
            Basis.model_validate(run["basis"]),
            tuple(Candidate.model_validate(one) for one in run["candidates"]),
            run["numbers"],
            str(run["answered_at"]) if run.get("answered_at") else None,
        )
    except ValidationError as error:
        raise NotFound(f"run {run['run_id']} was recorded in another form: {error.error_count()} fields differ", code="RUN_INCOMPLETE") from error


def texts_wanted(past: Past) -> list[PastText]:
    """Each chunk and parent once."""
    every: list[PastText] = [*past.basis.parents, *past.basis.chunks, *past.candidates]
    return list({one.id: one for one in reversed(every)}.values())
