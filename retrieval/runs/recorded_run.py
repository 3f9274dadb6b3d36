"""Read a recorded run back: its request, response, candidates and passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from retrieval.answering.extractive_answer import MODEL
from retrieval.runs.run_record import CHUNK_FIELDS, PARENT_FIELDS, copy_fields
from schemas.channels import Channel
from schemas.errors import NotFound
from schemas.ports.lineage import RecordedText
from schemas.ports.search import ChunkView, ParentView
from schemas.questions import (
    ChannelRank,
    QueryRequest,
    QueryResponse,
    SearchRequest,
    SearchResponse,
)
from schemas.run_records import RecordedChunk, RecordedParent, RunRecord, move_former_settings

# Only channels and rerankers use these; the run record holds the resulting numbers.
UNRECORDED_FIELDS: dict[str, Any] = {"positions": {}, "states": None}


def restore_chunk(recorded: RecordedChunk, text: str) -> ChunkView:
    return ChunkView(
        chunk_id=recorded.id,
        order=tuple(recorded.order),
        spans=recorded.spans,
        text=text,
        **copy_fields(recorded, CHUNK_FIELDS),
        **UNRECORDED_FIELDS,
    )


def restore_unread_chunk(
    chunk_id: UUID, parent_id: UUID, document_id: UUID, text: str
) -> ChunkView:
    """Build a view of a ranked chunk that was never read: only its text is known."""
    empty_fields: dict[str, Any] = dict.fromkeys(("external_id", "title", "source_uri", "language"))
    position_fields: dict[str, Any] = {
        "order": (),
        "revision": 0,
        "kind": "paragraph",
        "prefix": "",
        "char_start": 0,
        "char_end": len(text),
        "spans": [],
        "ordinal": 0,
    }
    return ChunkView(
        chunk_id=chunk_id,
        parent_id=parent_id,
        document_id=document_id,
        text=text,
        **empty_fields,
        **position_fields,
        **UNRECORDED_FIELDS,
    )


def restore_parent(recorded: RecordedParent, text: str) -> ParentView:
    return ParentView(
        parent_id=recorded.id,
        pages=recorded.pages,
        text=text,
        **copy_fields(recorded, PARENT_FIELDS),
    )


class RecordedCandidate(BaseModel):
    """A candidate as `retrieval.runs.run_record` records it. `rerank_score` and
    `rerank_order` belong to its parent.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    chunk_id: UUID
    parent_id: UUID
    document_id: UUID
    channels: dict[Channel, ChannelRank]
    text_sha256: str
    parts: dict[str, float] = {}
    fused: float
    rerank_score: float | None = None
    rerank_order: float | None = None

    @property
    def id(self) -> UUID:
        return self.chunk_id


@dataclass(frozen=True, slots=True)
class RecordedRun:
    request: SearchRequest
    response: SearchResponse | QueryResponse
    run_record: RunRecord
    candidates: tuple[RecordedCandidate, ...]
    numbers: Mapping[str, Any]
    answered_at: str | None = None

    @property
    def is_quoted(self) -> bool:
        """True when the sentences were quoted from passages rather than written by a model."""
        draft = self.run_record.draft
        return draft is None or draft.model == MODEL or draft.reply is None

    def get_parts(self, name: str) -> dict[UUID, float]:
        """Return an addend of the fused score by chunk."""
        return {
            candidate.chunk_id: candidate.parts[name]
            for candidate in self.candidates
            if name in candidate.parts
        }

    def check_texts(self, texts: Mapping[UUID, str]) -> None:
        """Raises NotFound when the text of a passage that was read no longer exists."""
        passages: list[RecordedChunk | RecordedParent] = [
            *self.run_record.chunks,
            *self.run_record.parents,
        ]
        missing = [passage for passage in passages if passage.id not in texts]
        if missing:
            documents = ", ".join(sorted({str(passage.document_id) for passage in missing}))
            raise NotFound(
                f"{len(missing)} passages that run {self.response.run_id} was answered from were "
                f"deleted, from document {documents}.",
                code="PASSAGE_GONE",
                remedy="The document was erased, or its generation was dropped. Only the recorded "
                "answer remains.",
            )

    def restore_chunks(self, texts: Mapping[UUID, str]) -> dict[UUID, ChunkView]:
        """Restore the chunk of every candidate.

        A candidate that was not read has only its text. When that is deleted, its hash stands in,
        so that duplicates stay duplicates.
        """
        read_chunks = {
            chunk.id: restore_chunk(chunk, texts[chunk.id]) for chunk in self.run_record.chunks
        }
        return {
            candidate.chunk_id: restore_unread_chunk(
                candidate.chunk_id,
                candidate.parent_id,
                candidate.document_id,
                texts.get(candidate.chunk_id, candidate.text_sha256),
            )
            for candidate in self.candidates
        } | read_chunks

    def restore_snapshot(self, texts: Mapping[UUID, str]) -> RecordedSnapshot:
        return RecordedSnapshot(
            self.run_record,
            self.restore_chunks(texts),
            {
                parent.id: restore_parent(parent, texts[parent.id])
                for parent in self.run_record.parents
            },
        )


class RecordedSnapshot:
    """PassageReader over the recorded passages."""

    def __init__(
        self,
        run_record: RunRecord,
        chunks: Mapping[UUID, ChunkView],
        parents: Mapping[UUID, ParentView],
    ) -> None:
        self._families = {parent.id: parent.children for parent in run_record.parents}
        self._chunks, self._parents = chunks, parents

    async def fetch_parents(self, parent_ids: Sequence[UUID]) -> Mapping[UUID, ParentView]:
        return {
            parent_id: self._parents[parent_id]
            for parent_id in parent_ids
            if parent_id in self._parents
        }

    async def fetch_children(self, parent_ids: Sequence[UUID]) -> Sequence[ChunkView]:
        return [
            self._chunks[child]
            for parent_id in parent_ids
            for child in self._families.get(parent_id, ())
        ]


def parse_run(run: Mapping[str, Any]) -> RecordedRun:
    """Parse a row of table `runs`.

    Raises NotFound with code RUN_INCOMPLETE when request, response or run_record is missing, and
    RUN_ERASED when all are, although it was answered.
    """
    missing = [name for name in ("request", "response", "run_record") if not run[name]]
    if len(missing) == 3 and run["answered_at"]:
        raise make_run_error(
            f"Run {run['run_id']} was erased together with a document that it names.", "RUN_ERASED"
        )
    if missing:
        raise NotFound(
            f"Run {run['run_id']} has no recorded {' and no '.join(missing)}.",
            code="RUN_INCOMPLETE",
            remedy=(
                "Wait until it has ended. If it was stopped, or recorded by an older version, send "
                "the query again."
            ),
        )
    is_query = run["kind"] == "query"
    try:
        return RecordedRun(
            (QueryRequest if is_query else SearchRequest).model_validate(run["request"]),
            (QueryResponse if is_query else SearchResponse).model_validate(run["response"]),
            # The row may be older than the program.
            RunRecord.model_validate(move_former_settings(run["run_record"])),
            tuple(RecordedCandidate.model_validate(candidate) for candidate in run["candidates"]),
            run["numbers"],
            str(run["answered_at"]) if run.get("answered_at") else None,
        )
    # Records are not migrated: one of another version stays readable but cannot be rerun.
    except (ValidationError, KeyError) as error:
        raise make_run_error(f"Run {run['run_id']} was recorded in another format.") from error


def make_run_error(detail: str, code: str = "RUN_INCOMPLETE") -> NotFound:
    return NotFound(detail, code=code, remedy="Send the query again.")


def list_required_texts(run: RecordedRun) -> list[RecordedText]:
    """List each recorded chunk and parent once."""
    passages: list[RecordedText] = [
        *run.run_record.parents,
        *run.run_record.chunks,
        *run.candidates,
    ]
    # Reversed, so that a chunk that was read wins over the candidate with the same id.
    return list({passage.id: passage for passage in reversed(passages)}.values())
