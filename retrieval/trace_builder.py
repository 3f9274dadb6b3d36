"""Build the trace of a query: route, channels, engines, timings and cost."""

from __future__ import annotations

from retrieval.answer.drafts import AnswerDraft
from retrieval.query_context import QueryContext, RetrievalResult
from retrieval.resources import RetrievalResources
from retrieval.response_builder import format_missing_collections
from schemas.questions import Trace


def build_trace(
    query: QueryContext,
    result: RetrievalResult,
    draft: AnswerDraft | None,
    resources: RetrievalResources,
) -> Trace:
    ranking, candidates = result.ranking, result.ranking.candidates
    is_reranked = ranking.reranked is not None and ranking.reranked.is_reranked
    models = {"embed": resources.embedder.model} if candidates.embedded_query else {}
    return Trace(
        generation=result.generation,
        profile=query.profile.name,
        route=result.route,
        channels=dict(candidates.traces),
        channels_used=list(candidates.traces),
        channels_failed=dict(candidates.failed),
        lexical=candidates.lexical.exactness if candidates.lexical else None,
        timings_ms=query.stopwatch.get_timings_ms(),
        reranker=resources.reranker.name if resources.reranker and is_reranked else None,
        max_rerank_score=result.relevance.best if is_reranked else None,
        threshold=result.relevance.threshold,
        calibrated=False,
        models={**models, **({"answer": draft.model} if draft else {})},
        model_calls=draft.calls if draft else 0,
        tokens=draft.tokens if draft else 0,
        notes=[*ranking.notes, *format_missing_collections(result)],
    )
