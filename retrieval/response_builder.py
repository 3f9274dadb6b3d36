"""Judge the draft by nine checks, and build the response.

The response is an answer, or a refusal in the query's language. Four checks are deterministic and
run here. The other five need a judge model and are reported as not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from retrieval.answer_drafts import AnswerDraft, compute_support, find_unsupported_numbers
from retrieval.context_packing import ContextPassage
from retrieval.query_context import QueryContext, RetrievalResources
from retrieval.query_plan import QueryPlan
from retrieval.relevance import RelevanceDecision, lower_confidence, rate_confidence
from retrieval.retrieval_result import RetrievalResult
from schemas.questions import (
    Confidence,
    Conflict,
    JudgeCheck,
    JudgeVerdict,
    PlanTrace,
    QueryRequest,
    QueryResponse,
    RefusalCode,
    Trace,
)

MIN_COVERAGE = 1.0
MIN_GROUNDEDNESS = 0.5
# Forms that hardly occur by chance; names and addresses are not detected.
_PII = {
    "e-mail": re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++"),
    "US social security number": re.compile(r"\b\d{3}-\d{2}-\d{4}\b"),
    "CPF": re.compile(r"\b\d{3}\.\d{3}\.\d{3}-\d{2}\b"),
    "CNPJ": re.compile(r"\b\d{2}\.\d{3}\.\d{3}/\d{4}-\d{2}\b"),
    "card number": re.compile(r"\b(?:\d{4}[ -]){3}\d{4}\b"),
}
MODEL_CHECKS = ("relevance", "consistency", "toxicity", "bias", "contradiction")


def judge_draft(
    draft: AnswerDraft, contexts: Sequence[ContextPassage], question: str
) -> JudgeVerdict:
    """Run all checks; FAIL_BLOCKED when a hard check fails.

    Hard checks: a number that occurs neither in a context nor in the query, or a sentence without a
    citation.
    """
    checks = [
        _check_coverage(draft),
        _check_groundedness(draft, contexts),
        _check_hallucination(draft, contexts, question),
        _check_pii(draft),
    ]
    checks += [
        JudgeCheck(
            name=name, kind="model", result="not_checked", evidence="no judge model is configured"
        )
        for name in MODEL_CHECKS
    ]
    blocked = any(check.result == "fail" and check.severity == "hard" for check in checks)
    return JudgeVerdict(decision="FAIL_BLOCKED" if blocked else "PASS", checks=checks)


def _check_coverage(draft: AnswerDraft) -> JudgeCheck:
    citation_numbers = {citation.n for citation in draft.citations}
    covered = [
        bool(citation_numbers.intersection(sentence.citations)) for sentence in draft.sentences
    ]
    score = sum(covered) / len(covered) if covered else 0.0
    return _build_check(
        "citation_coverage",
        score,
        MIN_COVERAGE,
        "hard",
        f"{sum(covered)} of {len(covered)} sentences have a verified citation",
    )


def _check_groundedness(draft: AnswerDraft, contexts: Sequence[ContextPassage]) -> JudgeCheck:
    """Measure the share of the answer's words that the contexts hold.

    Soft: answers in another language share few words with their sources.
    """
    score = compute_support(
        _get_answer_text(draft), [context.readable_text for context in contexts]
    )
    return _build_check(
        "groundedness",
        score,
        MIN_GROUNDEDNESS,
        "soft",
        f"the contexts hold {score:.0%} of the answer's words",
    )


def _check_hallucination(
    draft: AnswerDraft, contexts: Sequence[ContextPassage], question: str
) -> JudgeCheck:
    unsupported = find_unsupported_numbers(
        _get_answer_text(draft), [question, *(context.readable_text for context in contexts)]
    )
    evidence = (
        f"numbers in no context: {', '.join(unsupported[:5])}"
        if unsupported
        else "every number stands in a context; other statements were not checked"
    )
    return _build_check("hallucination", 0.0 if unsupported else 1.0, 1.0, "hard", evidence)


def _check_pii(draft: AnswerDraft) -> JudgeCheck:
    pii_kinds = [name for name, pattern in _PII.items() if pattern.search(_get_answer_text(draft))]
    return _build_check(
        "pii",
        0.0 if pii_kinds else 1.0,
        1.0,
        "soft",
        f"holds {', '.join(pii_kinds)}" if pii_kinds else "no personal identifier of a known form",
    )


def _build_check(
    name: str,
    score: float,
    threshold: float,
    severity: Literal["hard", "soft"],
    evidence: str,
) -> JudgeCheck:
    return JudgeCheck(
        name=name,
        kind="deterministic",
        result="pass" if score >= threshold else "fail",
        score=score,
        threshold=threshold,
        severity=severity,
        evidence=evidence,
    )


def _get_answer_text(draft: AnswerDraft) -> str:
    # Quoted answers mark the value in bold, which would separate it from its word.
    return " ".join(sentence.text for sentence in draft.sentences).replace("**", "")


FALLBACK_LANGUAGE = "en"

MESSAGES: dict[RefusalCode, dict[str, str]] = {
    "NO_SUITABLE_CONTEXT": {
        "en": "The documents contain nothing that answers this question.",
        "pt": "Os documentos não contêm nada que responda a esta pergunta.",
        "es": "Los documentos no contienen nada que responda a esta pregunta.",
        "fr": "Les documents ne contiennent rien qui réponde à cette question.",
        "de": "Die Dokumente enthalten nichts, was diese Frage beantwortet.",
    },
    "NO_SUCH_COLLECTION": {
        "en": "There is no collection {names}.",
        "pt": "Não existe a coleção {names}.",
        "es": "No existe la colección {names}.",
        "fr": "Il n'y a pas de collection {names}.",
        "de": "Es gibt keine Sammlung {names}.",
    },
    "INSUFFICIENT_CONTEXT": {
        "en": "The retrieved passages are not sufficient to answer this question.",
        "pt": "Os trechos encontrados não bastam para responder a esta pergunta.",
        "es": "Los pasajes encontrados no bastan para responder a esta pregunta.",
        "fr": "Les passages trouvés ne suffisent pas pour répondre à cette question.",
        "de": "Die gefundenen Stellen reichen nicht aus, um diese Frage zu beantworten.",
    },
    "JUDGE_BLOCKED": {
        "en": "The answer was withheld: the retrieved passages do not support it.",
        "pt": "A resposta foi retida: os trechos encontrados não a sustentam.",
        "es": "La respuesta se ha retenido: los pasajes encontrados no la respaldan.",
        "fr": "La réponse a été retenue : les passages trouvés ne l'appuient pas.",
        "de": "Die Antwort wurde zurückgehalten: die gefundenen Stellen stützen sie nicht.",
    },
}


# After NO_SUITABLE_CONTEXT, when a code of the question stands in no passage: with similar codes
# that the passages hold, and without.
COVERED_CODES = {
    "en": "The passages found mention {alternatives}, not {missing}.",
    "pt": "Os trechos encontrados mencionam {alternatives}, não {missing}.",
    "es": "Los pasajes encontrados mencionan {alternatives}, no {missing}.",
    "fr": "Les passages trouvés mentionnent {alternatives}, pas {missing}.",
    "de": "Die gefundenen Stellen nennen {alternatives}, nicht {missing}.",
}
MISSING_CODES = {
    "en": "The passages found do not mention {missing}.",
    "pt": "Os trechos encontrados não mencionam {missing}.",
    "es": "Los pasajes encontrados no mencionan {missing}.",
    "fr": "Les passages trouvés ne mentionnent pas {missing}.",
    "de": "Die gefundenen Stellen nennen {missing} nicht.",
}


def format_refusal(code: RefusalCode, language: str | None, collections: Sequence[str] = ()) -> str:
    """Format the message. `collections` fills in the names for NO_SUCH_COLLECTION."""
    return _choose_language(MESSAGES[code], language).replace(
        "{names}", ", ".join(map(repr, collections))
    )


def format_missing_codes(relevance: RelevanceDecision, language: str | None) -> list[str]:
    """Format one sentence about the codes of the question that no passage holds, if any."""
    if not relevance.missing_terms:
        return []
    texts = COVERED_CODES if relevance.alternatives else MISSING_CODES
    return [
        _choose_language(texts, language)
        .replace("{alternatives}", ", ".join(relevance.alternatives))
        .replace("{missing}", ", ".join(relevance.missing_terms))
    ]


def _choose_language(texts: Mapping[str, str], language: str | None) -> str:
    return texts.get(language or FALLBACK_LANGUAGE, texts[FALLBACK_LANGUAGE])


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
    # A blocked draft is withheld; its assumptions, limitations and cost are still reported.
    published_draft = draft if code is None else None
    conflict = published_draft.conflict if published_draft else None
    includes_contexts = (
        not isinstance(query_context.request, QueryRequest) or query_context.request.return_context
    )
    return QueryResponse(
        run_id=query_context.run_id,
        generation=result.generation,
        answer=published_draft.text if published_draft else None,
        refused=code is not None,
        code=code,
        message=_format_message(code, query_context, result) if code else None,
        language=query_context.plan.language,
        citations=list(published_draft.citations) if published_draft else [],
        contexts=list(result.results) if includes_contexts else [],
        judge=judgement,
        confidence=_rate_answer(result, draft),
        conflicts=[conflict] if conflict else [],
        assumptions=[*result.assumptions, *(draft.assumptions if draft else ())],
        limitations=[
            *([format_conflict(conflict)] if conflict else ()),
            *(draft.limitations if draft else ()),
            *(format_missing_codes(result.relevance, query_context.plan.language) if draft else ()),
            *format_missing_collections(result),
            *(f"Channel {name} did not answer." for name in result.ranking.candidates.failed),
        ],
        trace=build_trace(),
    )


def _rate_answer(result: RetrievalResult, draft: AnswerDraft | None) -> Confidence:
    confidence = rate_confidence(result.relevance, result.contexts, result.ranking.candidates)
    if draft is not None and draft.conflict is not None:
        confidence = lower_confidence(confidence, "the documents disagree on a number or date")
    return confidence


def _format_message(code: RefusalCode, query_context: QueryContext, result: RetrievalResult) -> str:
    language = query_context.plan.language
    sentences = [format_refusal(code, language, result.missing_collections)]
    if code == "NO_SUITABLE_CONTEXT":
        sentences += format_missing_codes(result.relevance, language)
    return " ".join(sentences)


def format_conflict(conflict: Conflict) -> str:
    """Format one sentence about the values on which the documents disagree."""
    values = (
        f"{value.value} {''.join(f'[{n}]' for n in value.citations)}" for value in conflict.values
    )
    return f"The documents disagree: {', '.join(values)}."


def format_missing_collections(result: RetrievalResult) -> list[str]:
    """Format one sentence for each missing collection."""
    return [f"There is no collection {name!r}." for name in result.missing_collections]


def _judge_draft(
    query_context: QueryContext, result: RetrievalResult, draft: AnswerDraft | None
) -> tuple[RefusalCode | None, JudgeVerdict | None]:
    if draft is None:
        return ("NO_SUCH_COLLECTION" if result.missing_collections else "NO_SUITABLE_CONTEXT"), None
    # The model found its contexts insufficient, or no sentence had a verified citation.
    if not draft.sentences:
        return "INSUFFICIENT_CONTEXT", None
    with query_context.stopwatch.measure_step("judge"):
        judgement = judge_draft(draft, result.contexts, query_context.plan.question)
    return ("JUDGE_BLOCKED" if judgement.decision == "FAIL_BLOCKED" else None), judgement


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
        plan=_build_plan_trace(query.plan),
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
        models={
            **models,
            **{use.task: use.model for use in result.model_uses},
            **({"answer": draft.model} if draft else {}),
        },
        model_calls=sum(use.calls for use in result.model_uses) + (draft.calls if draft else 0),
        rerank_requests=query.usage.rerank_requests,
        tokens=sum(use.tokens for use in result.model_uses) + (draft.tokens if draft else 0),
        notes=[
            *(use.note for use in result.model_uses if use.note),
            *ranking.notes,
            *result.assumptions,
            *format_missing_collections(result),
        ],
    )


def _build_plan_trace(plan: QueryPlan) -> PlanTrace:
    return PlanTrace(
        intent=plan.intent,
        decided_by=plan.planned_by,
        keywords=list(plan.search_words or plan.keywords),
        semantic_query=plan.text_to_embed,
        filters=plan.stated.filters if plan.stated else None,
        weights=dict(plan.weights),
        k=dict(plan.k),
        widen=plan.widen,
    )
