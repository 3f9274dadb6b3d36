"""Build the response from a draft: an answer, or a refusal in the query's language."""

from __future__ import annotations

from collections.abc import Callable

from retrieval.answer.drafts import AnswerDraft
from retrieval.confidence import rate_confidence
from retrieval.judge import judge_draft
from retrieval.query_context import QueryContext, RetrievalResult
from retrieval.refusal_messages import format_refusal
from schemas.questions import JudgeVerdict, QueryRequest, QueryResponse, RefusalCode, Trace


def should_answer(query_context: QueryContext, result: RetrievalResult) -> bool:
    """True when there are contexts, and the relevance check did not refuse them."""
    return bool(result.contexts) and not (
        result.relevance.refused and query_context.profile.answer.refuse
    )


def build_response(
    query_context: QueryContext,
    result: RetrievalResult,
    draft: AnswerDraft | None,
    build_trace: Callable[[], Trace],
) -> QueryResponse:
    """Build the response; a missing draft means a refusal.

    `build_trace` is called last, so that timings include the judge.
    """
    code, judgement = _judge_draft(query_context, result, draft)
    published_draft = draft if code is None else None
    includes_contexts = (
        not isinstance(query_context.request, QueryRequest) or query_context.request.return_context
    )
    return QueryResponse(
        run_id=query_context.run_id,
        generation=result.generation,
        answer=published_draft.text if published_draft else None,
        refused=code is not None,
        code=code,
        message=format_refusal(code, query_context.plan.language, result.missing_collections)
        if code
        else None,
        language=query_context.plan.language,
        citations=list(published_draft.citations) if published_draft else [],
        contexts=list(result.results) if includes_contexts else [],
        judge=judgement,
        confidence=rate_confidence(result.relevance, result.contexts, result.ranking.candidates),
        assumptions=list(draft.assumptions) if draft else [],
        limitations=[
            *(draft.limitations if draft else ()),
            *format_missing_collections(result),
            *(f"Channel {name} did not answer." for name in result.ranking.candidates.failed),
        ],
        trace=build_trace(),
    )


def format_missing_collections(result: RetrievalResult) -> list[str]:
    """Format one sentence for each missing collection."""
    return [f"There is no collection {name!r}." for name in result.missing_collections]


def _judge_draft(
    query_context: QueryContext, result: RetrievalResult, draft: AnswerDraft | None
) -> tuple[RefusalCode | None, JudgeVerdict | None]:
    if draft is None:
        return ("NO_SUCH_COLLECTION" if result.missing_collections else "NO_SUITABLE_CONTEXT"), None
    if not draft.sentences:
        return "INSUFFICIENT_CONTEXT", None
    with query_context.stopwatch.measure_step("judge"):
        judgement = judge_draft(draft, result.contexts, query_context.plan.question)
    return ("JUDGE_BLOCKED" if judgement.decision == "FAIL_BLOCKED" else None), judgement
