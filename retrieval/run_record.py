"""Record a run and read it back: events, inputs of the answer and passages.

Texts are recorded by hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from retrieval.extractive_answer import MODEL
from retrieval.fusion import FusedCandidate
from retrieval.judge import JudgedDraft
from retrieval.parent_expansion import RankedParent
from retrieval.query_context import QueryContext
from retrieval.retrieval_result import Ranking, RetrievalResult
from schemas.channels import Channel
from schemas.errors import NotFound
from schemas.events import EventData, QueryAnswered, QueryReceived
from schemas.ids import sha256_hex
from schemas.ports.engines import ChatReply
from schemas.ports.lineage import RecordedText
from schemas.ports.search import ChunkView, ParentView, SnapshotVersion
from schemas.principals import Principal
from schemas.questions import (
    ChannelRank,
    QueryRequest,
    QueryResponse,
    SearchRequest,
    SearchResponse,
)
from schemas.run_records import (
    RecordedChunk,
    RecordedDraft,
    RecordedParent,
    RecordedReply,
    RejectedDraft,
    RunRecord,
)

ResponseT = TypeVar("ResponseT", SearchResponse, QueryResponse)

CHUNK_FIELDS = (
    *(
        "parent_id",
        "document_id",
        "revision",
        "external_id",
        "title",
        "source_uri",
        "language",
        "kind",
        "prefix",
    ),
    *("char_start", "char_end", "ordinal"),
)
# Fields that record and view have in common.
PARENT_FIELDS = ("document_id", "section", "char_start", "char_end", "tokens", "ordinal")
# Only channels and rerankers use these; the run record holds the resulting numbers.
UNRECORDED_FIELDS: dict[str, Any] = {
    "positions": {},
    "states": None,
}


def hash_text(text: str) -> str:
    return sha256_hex(text.encode())


def record_chunk(view: ChunkView) -> RecordedChunk:
    spans = [dict(span) for span in view.spans]
    return RecordedChunk(
        id=view.chunk_id,
        order=list(view.order),
        spans=spans,
        # Only the hash, so that an erased text does not survive in the record.
        text_sha256=hash_text(view.text),
        **_copy_fields(view, CHUNK_FIELDS),
    )


def restore_chunk(recorded: RecordedChunk, text: str) -> ChunkView:
    return ChunkView(
        chunk_id=recorded.id,
        order=tuple(recorded.order),
        spans=recorded.spans,
        text=text,
        **_copy_fields(recorded, CHUNK_FIELDS),
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


def record_parent(view: ParentView, children: Iterable[ChunkView]) -> RecordedParent:
    """Record a parent. `children` are the chunks that could be quoted."""
    quotable = [child.chunk_id for child in children]
    return RecordedParent(
        id=view.parent_id,
        pages=list(view.pages),
        text_sha256=hash_text(view.text),
        children=quotable,
        **_copy_fields(view, PARENT_FIELDS),
    )


def restore_parent(recorded: RecordedParent, text: str) -> ParentView:
    return ParentView(
        parent_id=recorded.id,
        pages=recorded.pages,
        text=text,
        **_copy_fields(recorded, PARENT_FIELDS),
    )


def _copy_fields(passage: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(passage, name) for name in names}


def build_run_record(
    query_context: QueryContext, result: RetrievalResult, judged: JudgedDraft | None
) -> RunRecord:
    candidates = result.ranking.candidates
    passages = [
        passage for context in result.contexts for passage in (context, *context.duplicates)
    ]
    families = {passage.parent.parent_id: passage.children for passage in passages}
    # The best child of each parent that was read, and every chunk that could be quoted. The best
    # child of a context is both: record it once.
    chunks = {
        parent.best.chunk.chunk_id: parent.best.chunk
        for parent in result.ranking.parents
        if parent.parent_id in result.parent_views
    }
    chunks |= {chunk.chunk_id: chunk for passage in passages for chunk in passage.children}
    return RunRecord(
        profile=query_context.profile,
        question=query_context.plan.question,
        language=query_context.plan.language,
        language_sure=query_context.plan.language_sure,
        keywords=list(query_context.plan.keywords),
        further=query_context.plan.further,
        complete=sorted(candidates.complete),
        linked=[seed.key for seed in candidates.linked_seeds],
        parents=[
            record_parent(view, families.get(view.parent_id, ()))
            for view in result.parent_views.values()
        ],
        chunks=[record_chunk(chunk) for chunk in chunks.values()],
        draft=_record_draft(judged) if judged else None,
        facts=list(result.facts),
        assumptions=list(result.assumptions),
        missing_collections=list(result.missing_collections),
        prompts={
            **{use.task: use.prompt_sha256 for use in result.model_uses},
            **(_list_prompts(judged) if judged else {}),
        },
    )


def _list_prompts(judged: JudgedDraft) -> dict[str, str]:
    hashes = {
        "answer": judged.draft.prompt_sha256,
        "judge": judged.judgement.prompt_sha256 if judged.judgement else None,
    }
    return {name: sha256 for name, sha256 in hashes.items() if sha256}


def _record_draft(judged: JudgedDraft) -> RecordedDraft:
    draft, judgement = judged.draft, judged.judgement
    rejected = judged.rejected
    return RecordedDraft(
        model=draft.model,
        closeness=None if draft.closeness is None else list(draft.closeness),
        sentence_citations=[list(sentence.citations) for sentence in draft.sentences],
        reply=_record_reply(draft.reply),
        judge_reply=_record_reply(judgement.reply) if judgement else None,
        judge_error=judgement.error if judgement else None,
        rejected=(
            RejectedDraft(reply=_record_reply(rejected.draft.reply), verdict=rejected.verdict)
            if rejected and rejected.verdict
            else None
        ),
        assumptions=list(draft.assumptions),
        limitations=list(draft.limitations),
        calls=draft.calls,
        tokens=draft.tokens,
    )


def _record_reply(reply: ChatReply | None) -> RecordedReply | None:
    if reply is None:
        return None
    return RecordedReply(
        data=dict(reply.data),
        model=reply.model,
        calls=reply.calls,
        tokens=reply.usage.input_tokens + reply.usage.output_tokens,
    )


# Must return at once. Implementations buffer, so that an unreachable log never fails a query.
PublishRunEvent = Callable[[EventData], None]


def discard_event(event: EventData) -> None:
    """Publish nothing."""


def build_query_received(
    run_id: UUID, caller: Principal, request: SearchRequest, received_at: datetime
) -> QueryReceived:
    kind = "query" if isinstance(request, QueryRequest) else "search"
    return QueryReceived(
        run_id=run_id,
        tenant=caller.tenant,
        kind=kind,
        request=request.model_dump(mode="json"),
        received_at=received_at,
        requested_by=caller.id,
    )


def build_query_answered(
    tenant: str,
    response: SearchResponse | QueryResponse,
    ranking: Ranking,
    numbers: dict[str, Any],
    answered_at: datetime,
    run_record: RunRecord | None = None,
) -> QueryAnswered:
    """Build the event. `ranking` provides the candidates of all channels with all their numbers.

    A rerun starts from these candidates at fusion.
    """
    return QueryAnswered(
        run_id=response.run_id,
        tenant=tenant,
        generation=response.generation,
        answered_at=answered_at,
        response=response.model_dump(mode="json"),
        candidates=_list_candidates(ranking),
        numbers={**ranking.numbers, **numbers},
        run_record=run_record,
    )


def _list_candidates(ranking: Ranking) -> list[dict[str, Any]]:
    # Candidates are chunks: a parent's rerank score is recorded at its best chunk.
    parent_by_best_chunk: dict[UUID, RankedParent] = {}
    for parent in ranking.parents:
        parent_by_best_chunk.update(
            {
                ranked_parent.best.chunk.chunk_id: ranked_parent
                for ranked_parent in (parent, *parent.duplicates)
            }
        )
    return [
        _format_candidate(fused, parent_by_best_chunk.get(fused.chunk.chunk_id))
        for fused in ranking.fusion.candidates
    ]


def _format_candidate(fused: FusedCandidate, parent: RankedParent | None) -> dict[str, Any]:
    chunk = fused.chunk
    candidate: dict[str, Any] = {
        "chunk_id": str(chunk.chunk_id),
        "parent_id": str(chunk.parent_id),
        "document_id": str(chunk.document_id),
        "channels": {
            name: {"rank": channel_place.rank, "score": channel_place.score}
            for name, channel_place in fused.channel_places.items()
        },
        "text_sha256": hash_text(chunk.text),
        "parts": dict(fused.score_parts),
        "fused": fused.score,
    }
    if parent is not None:
        candidate |= {"parent_score": parent.score, "rerank_score": parent.rerank_score}
    return candidate


class RecordedCandidate(BaseModel):
    """A candidate as `retrieval.run_record` records it. `rerank_score` belongs to its parent."""

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
class QueryOutcome(Generic[ResponseT]):
    """The response to a query and the event to publish.

    `snapshot_version` is the index version it was computed from; None means: do not cache.
    """

    response: ResponseT
    answered_event: QueryAnswered
    snapshot_version: SnapshotVersion | None

    def copy_for_run(
        self, run_id: UUID, answered_at: datetime, timings_ms: dict[str, float]
    ) -> QueryOutcome[ResponseT]:
        """Copy the outcome for another run, with no model calls, tokens or cost."""
        changes = {
            "cached": True,
            "timings_ms": timings_ms,
            "model_calls": 0,
            "rerank_requests": 0,
            "tokens": 0,
            "cost": 0.0,
            "unpriced": [],
            "usage": [],
        }
        trace = self.response.trace.model_copy(update=changes)
        response = self.response.model_copy(update={"run_id": run_id, "trace": trace})
        body = response.model_dump(mode="json")
        answered_event = self.answered_event.model_copy(
            update={"run_id": run_id, "answered_at": answered_at, "response": body}
        )
        return replace(self, response=response, answered_event=answered_event)


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
    RUN_ERASED when all are.
    """
    missing = [name for name in ("request", "response", "run_record") if not run[name]]
    if len(missing) == 3:  # a run that has only started still has its request
        raise NotFound(
            f"Run {run['run_id']} was erased together with a document that it names.",
            code="RUN_ERASED",
            remedy="Send the query again.",
        )
    if missing:
        raise NotFound(
            f"Run {run['run_id']} has no {', no '.join(missing)}.",
            code="RUN_INCOMPLETE",
            remedy="It is still running, has failed, or was recorded by an older version.",
        )
    is_query = run["kind"] == "query"
    try:
        return RecordedRun(
            (QueryRequest if is_query else SearchRequest).model_validate(run["request"]),
            (QueryResponse if is_query else SearchResponse).model_validate(run["response"]),
            RunRecord.model_validate(run["run_record"]),
            tuple(RecordedCandidate.model_validate(candidate) for candidate in run["candidates"]),
            run["numbers"],
            str(run["answered_at"]) if run.get("answered_at") else None,
        )
    # Records are not migrated: one of another version stays readable but cannot be rerun.
    except ValidationError as error:
        raise NotFound(
            f"Run {run['run_id']} was recorded in another format: {error.error_count()} fields "
            "differ.",
            code="RUN_INCOMPLETE",
            remedy="Send the query again.",
        ) from error


def list_required_texts(run: RecordedRun) -> list[RecordedText]:
    """List each recorded chunk and parent once."""
    passages: list[RecordedText] = [
        *run.run_record.parents,
        *run.run_record.chunks,
        *run.candidates,
    ]
    # Reversed, so that a chunk that was read wins over the candidate with the same id.
    return list({passage.id: passage for passage in reversed(passages)}.values())
