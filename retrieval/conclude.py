"""From a draft to what is said: an answer, or a refusal in the question's language."""

from __future__ import annotations

from collections.abc import Callable

from retrieval.answer.drafts import Draft
from retrieval.confidence import confidence
from retrieval.judge import judge
from retrieval.looked import Asked, Looked
from retrieval.messages import message
from schemas.questions import Judgement, QueryRequest, QueryResponse, RefusalCode, Trace


def suits(asked: Asked, looked: Looked) -> bool:
    """Whether an answer is tried at all."""
    return bool(looked.contexts) and not (looked.suitability.refused and asked.profile.answer.refuse)


def conclude(asked: Asked, looked: Looked, draft: Draft | None, trace: Callable[[], Trace]) -> QueryResponse:
    """Without a draft nothing suited. `trace` is asked at the end."""
    code, judgement = _judged(asked, looked, draft)
    shown = draft if code is None else None
    with_contexts = not isinstance(asked.request, QueryRequest) or asked.request.return_context
    return QueryResponse(
        run_id=asked.run_id,
        generation=looked.generation,
        answer=shown.text if shown else None,
        refused=code is not None,
        code=code,
        message=message(code, asked.plan.language, looked.missing_collections) if code else None,
        language=asked.plan.language,
        citations=list(shown.citations) if shown else [],
        contexts=list(looked.results) if with_contexts else [],
        judge=judgement,
        confidence=confidence(looked.suitability, looked.contexts, looked.ranking.found),
        assumptions=list(draft.assumptions) if draft else [],
        limitations=[
            *(draft.limitations if draft else ()),
            *missing_collections(looked),
            *(f"Channel {name} did not answer." for name in looked.ranking.found.failed),
        ],
        trace=trace(),
    )


def missing_collections(looked: Looked) -> list[str]:
    """A sentence for each."""
    return [f"There is no collection {name!r}." for name in looked.missing_collections]


def _judged(asked: Asked, looked: Looked, draft: Draft | None) -> tuple[RefusalCode | None, Judgement | None]:
    if draft is None:
        return ("NO_SUCH_COLLECTION" if looked.missing_collections else "NO_SUITABLE_CONTEXT"), None
    if not draft.sentences:
        return "INSUFFICIENT_CONTEXT", None
    with asked.watch.step("judge"):
        judgement = judge(draft, looked.contexts, asked.plan.question)
    return ("JUDGE_BLOCKED" if judgement.decision == "FAIL_BLOCKED" else None), judgement
