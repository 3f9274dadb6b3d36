"""Build the response: an answer, or a refusal in the query's language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from retrieval.answering.answer_drafts import AnswerDraft, build_graph_facts
from retrieval.answering.judge import JudgedDraft
from retrieval.question.query_plan import QueryPlan
from retrieval.ranking.query_context import QueryContext, RetrievalResources
from retrieval.ranking.relevance import RelevanceDecision, lower_confidence, rate_confidence
from retrieval.ranking.retrieval_result import RetrievalResult
from schemas.citations import AnswerHop
from schemas.questions import (
    Confidence,
    Conflict,
    GraphFactsTrace,
    PlanTrace,
    QueryRequest,
    QueryResponse,
    RefusalCode,
    Trace,
)

FALLBACK_LANGUAGE = "en"
UNREAD_PART_CODES = frozenset(
    {
        "ATTACHMENT_NOT_INDEXED",
        "EMBEDDED_FILE",
        "FORMULA_WITHOUT_VALUE",
        "INVALID_JSON",
        "MISSING_PART",
        "PAGE_WITHOUT_TEXT",
        "UNDECODABLE_BYTES",
    }
)
"""Warnings of a document whose text lacks what a reader of the file may see."""

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
    """True when there are facts, or contexts that the relevance check did not refuse."""
    return bool(result.facts) or bool(drop_refused_contexts(query_context, result).contexts)


def drop_refused_contexts(query_context: QueryContext, result: RetrievalResult) -> RetrievalResult:
    """Return the result without contexts if the relevance check refused them.

    Contexts that the chat model asked for are its to refuse.
    """
    may_refuse = query_context.profile.answer.refuse and not query_context.plan.further
    is_refused = result.relevance.refused and may_refuse
    return replace(result, contexts=(), graph_lines=()) if is_refused else result


def build_response(
    query_context: QueryContext,
    result: RetrievalResult,
    judged: JudgedDraft | None,
    build_trace: Callable[[], Trace],
) -> QueryResponse:
    """Build the response; a missing draft means a refusal."""
    code, draft = _find_refusal(result, judged), judged.draft if judged else None
    # A blocked draft is withheld, with all that its model says; its cost is still reported.
    if draft is not None and code == "JUDGE_BLOCKED":
        draft = draft.drop_remarks()
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
        facts=list(published_draft.facts) if published_draft else [],
        contexts=list(result.results) if includes_contexts else [],
        path=_choose_hops(result) if published_draft else [],
        relation_path=list(published_draft.relation_path) if published_draft else [],
        graph_facts=build_graph_facts(result.graph_lines) if includes_contexts else [],
        judge=judged.verdict if judged else None,
        confidence=_rate_answer(query_context, result, judged),
        conflicts=[conflict] if conflict else [],
        assumptions=[*result.assumptions, *(draft.assumptions if draft else ())],
        limitations=[
            *([format_conflict(conflict)] if conflict else ()),
            *(draft.limitations if draft else ()),
            *(format_missing_codes(result.relevance, query_context.plan.language) if draft else ()),
            *format_missing_collections(result),
            *_format_unread_parts(result, published_draft),
            *(f"Channel {name} did not answer." for name in result.ranking.candidates.failed),
        ],
        trace=build_trace(),
    )


def _choose_hops(result: RetrievalResult) -> list[AnswerHop]:
    """Return the hops to documents whose passages the answer was written from."""
    read = {context.view.document_id for context in result.contexts}
    return [hop for hop in result.ranking.candidates.hops if hop.target.document_id in read]


def _rate_answer(
    query_context: QueryContext, result: RetrievalResult, judged: JudgedDraft | None
) -> Confidence:
    confidence = rate_confidence(result.relevance, result.contexts, result.ranking.candidates)
    if judged is not None and judged.draft.facts and not judged.draft.citations:
        certainty = max(fact.certainty for fact in judged.draft.facts)
        reason = f"rests on stated facts alone, of certainty {certainty:.2f}"
        confidence = Confidence(level="medium", reasons=[reason])
    if judged is not None and judged.draft.conflict is not None:
        confidence = lower_confidence(confidence, "the documents disagree on a number or date")
    if judged is not None and judged.verdict is not None and judged.verdict.violations:
        names = ", ".join(violation.check for violation in judged.verdict.violations)
        confidence = lower_confidence(confidence, f"failed checks: {names}")
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


def _format_unread_parts(result: RetrievalResult, draft: AnswerDraft | None) -> list[str]:
    """Name the cited documents of which parts were not read; for a refusal, all that were found."""
    cited = {citation.document_id for citation in draft.citations} if draft else None
    codes = {
        context.view.document_id: (context.parent.best.chunk, context.view.warning_codes)
        for context in result.contexts
        if cited is None or context.view.document_id in cited
    }
    return [
        f"Parts of {chunk.title or chunk.external_id or chunk.document_id} were not read: "
        f"{', '.join(unread)}. The warnings of the document say which."
        for chunk, document_codes in codes.values()
        if (unread := [code for code in document_codes if code in UNREAD_PART_CODES])
    ]


def _find_refusal(result: RetrievalResult, judged: JudgedDraft | None) -> RefusalCode | None:
    if judged is None:
        return "NO_SUCH_COLLECTION" if result.missing_collections else "NO_SUITABLE_CONTEXT"
    # The model found its contexts insufficient, or no sentence had a verified citation.
    if judged.judgement is None:
        return "INSUFFICIENT_CONTEXT"
    return None if judged.is_passed else "JUDGE_BLOCKED"


def build_trace(
    query: QueryContext,
    result: RetrievalResult,
    judged: JudgedDraft | None,
    resources: RetrievalResources,
) -> Trace:
    ranking, candidates = result.ranking, result.ranking.candidates
    is_reranked = ranking.reranked is not None and ranking.reranked.is_reranked
    usage = query.budget.list_usage()
    models = {"embed": resources.embedder.model} if candidates.embedded_query else {}
    if judged is not None:
        models["answer"] = judged.draft.model
        if judged.judgement and judged.judgement.model:
            models["judge"] = judged.judgement.model
    return Trace(
        generation=result.generation,
        profile=query.profile.name,
        plan=_build_plan_trace(query.plan, query.standalone),
        route=result.route,
        channels=dict(candidates.traces),
        channels_used=list(candidates.traces),
        channels_failed=dict(candidates.failed),
        graph_facts=(
            GraphFactsTrace(
                found=len(result.graph_evidence),
                read=len(result.graph_lines),
                tokens=sum(line.tokens for line in result.graph_lines),
            )
            if result.graph_evidence
            else None
        ),
        lexical=candidates.lexical.exactness if candidates.lexical else None,
        timings_ms=query.stopwatch.get_timings_ms(),
        reranker=resources.reranker.name if resources.reranker and is_reranked else None,
        max_rerank_score=result.relevance.best if is_reranked else None,
        rerank_background=result.relevance.background,
        threshold=result.relevance.threshold,
        calibrated=query.calibration != "uncalibrated",
        calibration=query.calibration,
        missing_collections=list(result.missing_collections),
        models={**models, **{use.task: use.model for use in result.model_uses}},
        model_calls=sum(item.calls for item in usage if not item.local),
        rerank_requests=query.budget.rerank_requests,
        tokens=sum(item.input_tokens + item.output_tokens for item in usage),
        cost=query.budget.compute_cost(),
        currency=query.budget.prices.currency,
        unpriced=query.budget.list_unpriced(),
        usage=usage,
        stopped=list(query.budget.stopped),
        notes=[
            *(use.note for use in result.model_uses if use.note),
            *ranking.notes,
            *candidates.notes,
            *result.notes,
            *result.assumptions,
            *format_missing_collections(result),
        ],
    )


def _build_plan_trace(plan: QueryPlan, standalone: str | None) -> PlanTrace:
    return PlanTrace(
        question=standalone,
        intent=plan.intent,
        decided_by=plan.planned_by,
        keywords=list(plan.search_words or plan.keywords),
        semantic_query=plan.text_to_embed,
        filters=plan.stated.filters if plan.stated else None,
        weights=dict(plan.weights),
        k=dict(plan.k),
        widen=plan.widen,
        cypher=plan.cypher.cypher if plan.cypher else None,
    )
