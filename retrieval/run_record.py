"""Build the run record: all inputs of an answer besides candidates and numbers, for reruns. Texts
by hash.
"""

from __future__ import annotations

from collections.abc import Iterable

from retrieval.answer.drafts import AnswerDraft
from retrieval.passage_codec import record_chunk, record_parent
from retrieval.query_context import QueryContext, RetrievalResult
from schemas.ports.engines import ChatReply
from schemas.ports.search import ChunkView
from schemas.run_records import RecordedDraft, RecordedReply, RunRecord


def build_run_record(
    query_context: QueryContext, result: RetrievalResult, draft: AnswerDraft | None
) -> RunRecord:
    candidates = result.ranking.candidates
    families = {context.parent.parent_id: context.children for context in result.contexts}
    chunks = {chunk.chunk_id: chunk for chunk in _iterate_read_chunks(result)}
    return RunRecord(
        profile=query_context.profile,
        question=query_context.plan.question,
        language=query_context.plan.language,
        language_sure=query_context.plan.language_sure,
        keywords=list(query_context.plan.keywords),
        complete=sorted(candidates.complete),
        linked=[seed.key for seed in candidates.linked_seeds],
        parents=[
            record_parent(view, families.get(view.parent_id, ()))
            for view in result.parent_views.values()
        ],
        chunks=[record_chunk(chunk) for chunk in chunks.values()],
        draft=_record_draft(draft) if draft else None,
        missing_collections=list(result.missing_collections),
    )


def _iterate_read_chunks(result: RetrievalResult) -> Iterable[ChunkView]:
    """Yield the best child of each parent that was read, and every chunk that could be quoted."""
    for parent in result.ranking.parents:
        if parent.parent_id in result.parent_views:
            yield parent.best.chunk
    for context in result.contexts:
        yield from context.children


def _record_draft(draft: AnswerDraft) -> RecordedDraft:
    return RecordedDraft(
        model=draft.model,
        closeness=None if draft.closeness is None else list(draft.closeness),
        reply=_record_reply(draft.reply) if draft.reply else None,
        assumptions=list(draft.assumptions),
        limitations=list(draft.limitations),
        calls=draft.calls,
        tokens=draft.tokens,
    )


def _record_reply(reply: ChatReply) -> RecordedReply:
    return RecordedReply(
        data=dict(reply.data),
        model=reply.model,
        calls=reply.calls,
        tokens=reply.usage.input_tokens + reply.usage.output_tokens,
    )
