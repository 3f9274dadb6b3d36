"""Record a run: its events, the inputs of the answer and the passages; `recorded_run` reads them.

Texts are recorded by hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from retrieval.answering.judge import JudgedDraft
from retrieval.ranking.fusion import FusedCandidate
from retrieval.ranking.passages import RankedParent
from retrieval.ranking.query_context import QueryContext
from retrieval.ranking.retrieval_result import Ranking, RetrievalResult
from schemas.events import EventData, QueryAnswered, QueryReceived
from schemas.ids import sha256_hex
from schemas.ports.engines import ChatReply
from schemas.ports.search import ChunkView, ParentView, SnapshotVersion
from schemas.principals import Principal
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse
from schemas.run_records import (
    RecordedChunk,
    RecordedDraft,
    RecordedParent,
    RecordedReply,
    RejectedDraft,
    RunRecord,
)

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
PARENT_FIELDS = (
    "document_id",
    "section",
    "char_start",
    "char_end",
    "tokens",
    "ordinal",
    "warning_codes",
)


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
        **copy_fields(view, CHUNK_FIELDS),
    )


def record_parent(view: ParentView, children: Iterable[ChunkView]) -> RecordedParent:
    """Record a parent. `children` are the chunks that could be quoted."""
    quotable = [child.chunk_id for child in children]
    return RecordedParent(
        id=view.parent_id,
        pages=list(view.pages),
        text_sha256=hash_text(view.text),
        children=quotable,
        **copy_fields(view, PARENT_FIELDS),
    )


def copy_fields(passage: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(passage, name) for name in names}


def build_run_record(
    query_context: QueryContext, result: RetrievalResult, judged: JudgedDraft | None
) -> RunRecord:
    candidates = result.ranking.candidates
    passages = [
        *(passage for context in result.contexts for passage in (context, *context.duplicates)),
        *(line.quote.context for line in result.graph_lines),
    ]
    families: dict[UUID, dict[UUID, ChunkView]] = {}
    for passage in passages:
        family = families.setdefault(passage.parent.parent_id, {})
        family |= {child.chunk_id: child for child in passage.children}
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
            record_parent(view, families.get(view.parent_id, {}).values())
            for view in result.parent_views.values()
        ],
        chunks=[record_chunk(chunk) for chunk in chunks.values()],
        draft=_record_draft(judged) if judged else None,
        facts=list(result.facts),
        graph_evidence=list(result.graph_evidence),
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
        request=request.model_dump(mode="json") | {"return_text": False},
        received_at=received_at,
        requested_by=caller.id,
    )


def build_query_answered(
    query: QueryContext,
    response: SearchResponse | QueryResponse,
    result: RetrievalResult,
    judged: JudgedDraft | None,
    answered_at: datetime,
) -> QueryAnswered:
    """Build the event, with the candidates of all channels and all their numbers.

    A rerun starts from these candidates at fusion.
    """
    return QueryAnswered(
        run_id=response.run_id,
        tenant=query.caller.tenant,
        generation=response.generation,
        answered_at=answered_at,
        response=_dump_response(response),
        candidates=_list_candidates(result.ranking),
        numbers={**result.ranking.numbers, "refusal": asdict(result.relevance)},
        run_record=build_run_record(query, result, judged),
    )


def _dump_response(response: SearchResponse | QueryResponse) -> dict[str, Any]:
    body = response.model_dump(mode="json")
    # An event cannot hold the texts of a hundred passages, and a run must not keep a copy of them.
    for passage in body.get("contexts") or body.get("results", ()):
        passage["text"] = None
    return body


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
        # A rerun cannot compute it from the candidates.
        if "rerank_order" in parent.score_parts:
            candidate["rerank_order"] = parent.score_parts["rerank_order"]
    return candidate


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The response to a query and the event to publish.

    `snapshot_version` is the index version it was computed from; None means: do not cache.
    """

    response: SearchResponse | QueryResponse
    answered_event: QueryAnswered
    snapshot_version: SnapshotVersion | None

    def copy_for_run(
        self, run_id: UUID, answered_at: datetime, timings_ms: dict[str, float]
    ) -> QueryOutcome:
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
        body = _dump_response(response)
        answered_event = self.answered_event.model_copy(
            update={"run_id": run_id, "answered_at": answered_at, "response": body}
        )
        return replace(self, response=response, answered_event=answered_event)
