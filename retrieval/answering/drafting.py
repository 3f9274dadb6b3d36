"""Weigh the evidence, write the draft of an answer, and have it judged.

The chat model writes it; without one, or when it fails, it consists of quotes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from retrieval.answering.answer_drafts import AnswerDraft
from retrieval.answering.confidence import assess_evidence
from retrieval.answering.evidence import Evidence, weigh_evidence
from retrieval.answering.extractive_answer import compose_quoted_answer
from retrieval.answering.generative_answer import PartialAnswer, generate_answer
from retrieval.answering.judge import JudgedDraft, build_judged_answer, judge_answer
from retrieval.answering.response_builder import drop_refused_contexts, should_answer
from retrieval.prompting import describe_failure, extend_prompt, render_prompt
from retrieval.ranking.query_context import QueryContext, RetrievalResources
from retrieval.ranking.quote_candidates import extract_quote_candidates
from retrieval.ranking.retrieval_result import RetrievalResult, find_relation_path
from schemas.errors import AnabranchError, InvalidModelOutput
from schemas.judge_verdicts import Violation
from schemas.questions import AnswerDelta


async def weigh_contexts(
    query: QueryContext, result: RetrievalResult, resources: RetrievalResources
) -> tuple[Evidence, RetrievalResult]:
    """Score the sentences of the contexts, and decide by them whether to answer."""
    evidence = (
        # A cross-encoder's scores decide nothing that the chat model does not.
        Evidence(tuple(extract_quote_candidates(result.contexts, query.plan.question)))
        if resources.chat is not None
        and query.profile.answer.model == "default"
        and resources.reranker is not None
        and resources.reranker.role == "replaces"
        else await _weigh(query, result, resources)
    )
    profile = query.profile.answer
    if find_relation_path(query.plan, result):
        # The path answers the question, however little each of its sentences says of it.
        profile = profile.model_copy(update={"min_confidence": 0.0})
    relevance = assess_evidence(result.relevance, evidence, result.contexts, query.plan, profile)
    return evidence, replace(result, relevance=relevance)


async def _weigh(
    query: QueryContext, result: RetrievalResult, resources: RetrievalResources
) -> Evidence:
    reranked, reranker = result.ranking.reranked, resources.reranker
    # A reranker that failed during ranking is not called again.
    is_reranker_usable = reranker is not None and (
        reranked.is_reranked if reranked else reranker.role == "added"
    )
    evidence = await weigh_evidence(
        extract_quote_candidates(result.contexts, query.plan.question),
        query.plan,
        result.ranking.candidates.embedded_query,
        resources.embedder,
        reranker if is_reranker_usable else None,
        resources.states,
        query.profile.rerank,
    )
    query.budget.rerank_requests += evidence.rerank_requests
    return evidence


async def write_judged_draft(
    query: QueryContext, result: RetrievalResult, evidence: Evidence, resources: RetrievalResources
) -> JudgedDraft | None:
    """Write the draft from the contexts of `result` and judge it, or return None when they do not
    suit.

    A written draft that fails a hard check is written once more. Words of the model are streamed
    as it writes, or after the verdict if the profile says so.
    """
    if not should_answer(query, result):
        return None
    result = drop_refused_contexts(query, result)
    if not result.contexts:
        evidence = Evidence(())
    profile = query.profile.judge
    is_streamed = query.is_streamed and not profile.hold
    deltas = PartialAnswer(query.on_progress, query.redactor) if is_streamed else None
    judged = await _write_and_judge(query, result, evidence, resources, deltas)
    verdict = judged.verdict
    if verdict and verdict.decision == "FAIL_BLOCKED" and profile.retry and judged.draft.reply:
        if deltas:
            deltas.start_attempt()
        rejected = judged.mark_retryable()
        judged = await _write_and_judge(
            query, result, evidence, resources, deltas, verdict.violations
        )
        judged = replace(judged, rejected=rejected)
    if query.is_streamed and profile.hold and judged.draft.reply and judged.is_passed:
        text = " ".join(sentence.text for sentence in judged.draft.sentences)
        query.on_progress(AnswerDelta(draft=1, text=query.redactor.mask(text)))
    return judged


async def _write_and_judge(
    query: QueryContext,
    result: RetrievalResult,
    evidence: Evidence,
    resources: RetrievalResources,
    deltas: PartialAnswer | None,
    violations: Sequence[Violation] = (),
) -> JudgedDraft:
    with query.stopwatch.measure_step("answer"):
        draft = await _write_draft(query, result, evidence, resources, deltas, violations)
    # The model found its contexts insufficient, or no sentence had a verified citation.
    if not draft.sentences:
        return JudgedDraft(draft)
    with query.stopwatch.measure_step("judge"):
        answer = build_judged_answer(draft, result.read_passages, query.plan, query.redactor)
        judgement = await judge_answer(answer, query.profile.judge, resources.judge, query.redactor)
    return JudgedDraft(draft, judgement)


async def _write_draft(
    query: QueryContext,
    result: RetrievalResult,
    evidence: Evidence,
    resources: RetrievalResources,
    deltas: PartialAnswer | None,
    violations: Sequence[Violation],
) -> AnswerDraft:
    """Write the draft. Falls back to quotes when the chat model fails."""
    profile, chat = query.profile.answer, resources.chat
    if chat is None or profile.model != "default":
        return quote_contexts(query, result, evidence)
    prompt = render_prompt("answer", profile.prompt, query.plan.language)
    # The last call that the budget allows must answer.
    may_search = (
        query.searches_left > 0 and not violations and query.budget.count_calls_left("answer") > 1
    )
    if result.facts:
        prompt = extend_prompt(prompt, "facts")
    if result.graph_lines:
        prompt = extend_prompt(prompt, "graph")
    if may_search:
        prompt = extend_prompt(prompt, "search")
    if violations:
        prompt = extend_prompt(prompt, "retry")
    on_delta = deltas.feed if deltas else None
    try:
        async with asyncio.timeout(profile.timeout_s):
            draft = await generate_answer(
                query, result, evidence, chat, prompt, on_delta, violations, may_search=may_search
            )
    # The passages are there: a failed model costs the wording, not the answer.
    except (AnabranchError, TimeoutError) as error:
        if evidence.scores is None:
            evidence = await _weigh(query, result, resources)
        draft = quote_contexts(query, result, evidence)
        draft = _mark_fallback(draft, chat.model, error, profile.timeout_s)
    return replace(draft, prompt_sha256=prompt.sha256)


def quote_contexts(query: QueryContext, result: RetrievalResult, evidence: Evidence) -> AnswerDraft:
    return compose_quoted_answer(
        evidence,
        query.plan,
        query.redactor,
        is_confident=result.relevance.is_confident,
        facts=result.facts,
        path=find_relation_path(query.plan, result),
    )


def _mark_fallback(
    draft: AnswerDraft, model: str, error: AnabranchError | TimeoutError, timeout_s: float
) -> AnswerDraft:
    """Add the reason for quoting, and the cost of the failed call."""
    reason = describe_failure(error, timeout_s)
    note = (
        f"The chat model {model} gave no usable answer ({reason.rstrip('.')}); the answer is "
        "quoted instead."
    )
    model_error = error if isinstance(error, InvalidModelOutput) else None
    return replace(
        draft,
        limitations=(note, *draft.limitations),
        # Other errors do not count their calls; at least one was made.
        calls=model_error.calls if model_error else 1,
        tokens=model_error.tokens if model_error else 0,
        has_engine_failure=True,
    )
