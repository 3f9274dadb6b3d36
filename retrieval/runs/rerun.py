"""Rerun a recorded query: the pipeline, over steps that answer from the record.

They use the recorded candidates, numbers and engine replies; no engine and no index is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from retrieval.answering.answer_drafts import AnswerDraft
from retrieval.answering.drafting import quote_contexts
from retrieval.answering.evidence import Evidence
from retrieval.answering.generative_answer import generate_answer
from retrieval.answering.judge import (
    NO_MODEL,
    JudgedDraft,
    Judgement,
    build_judged_answer,
    decide,
    list_active_checks,
    parse_review,
)
from retrieval.answering.response_builder import drop_refused_contexts, should_answer
from retrieval.pipeline import Goal, PipelineResult, run_pipeline
from retrieval.prompting import Prompt
from retrieval.question.query_plan import QueryPlan
from retrieval.ranking.candidate_retrieval import ChannelCandidates
from retrieval.ranking.fusion import TERM_NAMES, FusionInput, fuse_candidates
from retrieval.ranking.passages import RankedParent, expand_to_parents, fold_parents
from retrieval.ranking.planning import ModelUse
from retrieval.ranking.query_context import QueryContext, Stopwatch
from retrieval.ranking.quote_candidates import extract_quote_candidates, normalize_quote
from retrieval.ranking.relevance import RelevanceDecision
from retrieval.ranking.reranking import RerankResult, combine_scores
from retrieval.ranking.retrieval_result import Ranking, RetrievalResult
from retrieval.redaction import Redactor
from retrieval.runs.recorded_run import (
    RecordedRun,
    RecordedSnapshot,
    list_required_texts,
    make_run_error,
    parse_run,
)
from schemas.channels import CHANNELS, Channel
from schemas.ports.engines import DEFAULT_CHAT_OPTIONS, ChatOptions, ChatReply, ChatUsage, OnDelta
from schemas.ports.lineage import RecordedTexts
from schemas.ports.search import EntitySeed, Hit
from schemas.principals import Principal
from schemas.questions import (
    QueryRequest,
    QueryResponse,
    Route,
    SearchResponse,
    Trace,
    ignore_progress,
)
from schemas.run_records import RecordedDraft, RecordedReply


@dataclass(frozen=True, slots=True)
class Rerun:
    """The response of a rerun, compared with the recorded one.

    `same` ignores the trace, which is copied from the record. `differences` names the fields that
    differ. `missing` lists candidates whose text no longer exists and that the answer was not read
    from.
    """

    response: SearchResponse | QueryResponse
    same: bool
    differences: tuple[str, ...]
    missing: tuple[UUID, ...]


async def rerun_run(run: Mapping[str, Any], caller: Principal, texts: RecordedTexts) -> Rerun:
    """Rerun a row of table `runs`.

    Raises NotFound when the record is incomplete, or when a text that was read no longer exists.
    """
    record = parse_run(run)
    recovered_texts = await fetch_run_texts(record, caller, texts)
    response = (await answer_from_record(record, caller, recovered_texts)).response
    assert response is not None
    new_fields = response.model_dump(mode="json")
    recorded_fields = record.response.model_dump(mode="json")
    # Only fields that the record has: one that a newer version added would differ by its default.
    differences = tuple(
        name
        for name in recorded_fields
        if name in record.response.model_fields_set and new_fields[name] != recorded_fields[name]
    )
    return Rerun(
        response,
        not differences,
        differences,
        tuple(
            candidate.chunk_id
            for candidate in record.candidates
            if candidate.chunk_id not in recovered_texts
        ),
    )


async def fetch_run_texts(
    record: RecordedRun, caller: Principal, texts: RecordedTexts
) -> Mapping[UUID, str]:
    """Fetch the texts of a run, by id. Raises NotFound if one that was read is gone."""
    # Records hold hashes only: an erased text cannot be recovered from a run.
    recovered_texts = await texts.fetch_texts(caller, list_required_texts(record))
    record.check_texts(recovered_texts)
    return recovered_texts


async def answer_from_record(
    record: RecordedRun,
    caller: Principal,
    texts: Mapping[UUID, str],
    quote_scores: Mapping[str, float] | None = None,
) -> PipelineResult:
    """Run the pipeline on a record, which may be one that was changed (see `RecordedSteps`).

    Raises NotFound for a run with a former setting of another value than the program has.
    """
    if former := record.run_record.former_settings:
        settings = ", ".join(f"{name} = {value}" for name, value in former.items())
        raise make_run_error(
            f"Run {record.response.run_id} cannot be repeated: it was recorded with {settings}, "
            "which this version cannot set."
        )
    query = _restore_context(record, caller)
    goal: Goal = "answer" if isinstance(record.request, QueryRequest) else "results"
    steps = RecordedSteps(record, texts, quote_scores)
    # The plan is final: the record holds the candidates of the last search.
    return await run_pipeline(query, steps, goal, answer_plan=query.plan)


@dataclass(frozen=True, slots=True)
class RecordedSteps:
    """The steps of a past run, answered from its record.

    Of a record whose candidates were changed, the recorded scores fit no longer by their order:
    `quote_scores` holds them by the text of the sentence, and others are not compared.
    """

    record: RecordedRun
    texts: Mapping[UUID, str]
    quote_scores: Mapping[str, float] | None = None

    async def plan_and_route(
        self, query: QueryContext
    ) -> tuple[QueryContext, Route, tuple[ModelUse, ...]]:
        return query, self.record.response.trace.route, ()

    def open_snapshot(self, query: QueryContext) -> AbstractAsyncContextManager[RecordedSnapshot]:
        return nullcontext(self.record.restore_snapshot(self.texts))

    async def search(
        self, query: QueryContext, snapshot: RecordedSnapshot, route: Route, depth: int | None
    ) -> tuple[QueryContext, RetrievalResult]:
        return query, _restore_ranking(self.record, self.texts)

    async def add_graph_and_facts(
        self,
        query: QueryContext,
        question: QueryContext,
        result: RetrievalResult,
        snapshot: RecordedSnapshot,
    ) -> RetrievalResult:
        # The restored ranking has them.
        return result

    async def weigh(
        self, query: QueryContext, result: RetrievalResult
    ) -> tuple[Evidence, RetrievalResult]:
        quotes = extract_quote_candidates(result.contexts, query.plan.question)
        if (known := self.quote_scores) is not None:
            quotes = [quote for quote in quotes if normalize_quote(quote.readable_text) in known]
            known_scores = (known[normalize_quote(quote.readable_text)] for quote in quotes)
            return Evidence(tuple(quotes), tuple(known_scores)), result
        draft = self.record.run_record.draft
        closeness = draft.closeness if draft else None
        # Another version of the splitter may find other sentences, which the scores do not fit.
        is_usable = closeness is not None and len(closeness) == len(quotes)
        scores = tuple(closeness) if closeness and is_usable else None
        return Evidence(tuple(quotes), scores), result

    async def write(
        self, query: QueryContext, result: RetrievalResult, evidence: Evidence
    ) -> JudgedDraft | None:
        if not should_answer(query, result):
            return None
        result = drop_refused_contexts(query, result)
        if not result.contexts:
            evidence = Evidence(())
        return await _redraft(result, self.record, query, evidence)

    def build_trace(
        self, query: QueryContext, result: RetrievalResult, draft: JudgedDraft | None
    ) -> Trace:
        return self.record.response.trace


def _restore_context(record: RecordedRun, caller: Principal) -> QueryContext:
    run_record, recorded_plan = record.run_record, record.response.trace.plan
    plan = QueryPlan(
        run_record.question,
        run_record.language,
        run_record.language_sure,
        tuple(run_record.keywords),
        # Names are not restored: only the channels use them, and they do not run.
        (),
        {},
        further=run_record.further,
        intent=recorded_plan.intent if recorded_plan else "other",
    )
    return QueryContext(
        caller,
        record.response.run_id,
        record.request,
        run_record.profile,
        plan,
        # The trace is copied from the record, so these timings are never shown.
        Stopwatch(lambda: datetime.fromtimestamp(0, UTC)),
        ignore_progress,
        redactor=Redactor(run_record.profile.redaction, run_record.question),
    )


def _restore_ranking(record: RecordedRun, texts: Mapping[UUID, str]) -> RetrievalResult:
    profile, trace = record.run_record.profile, record.response.trace
    chunks = record.restore_chunks(texts)
    # In the order in which the run fused them: another changes the last digits of the sums.
    hits: dict[Channel, list[Hit]] = {}
    for channel in CHANNELS:
        for candidate in record.candidates:
            if channel in candidate.channels:
                score = candidate.channels[channel].score
                hits.setdefault(channel, []).append(
                    Hit(candidate.chunk_id, candidate.document_id, score)
                )
    fusion = fuse_candidates(
        FusionInput(
            hits,
            frozenset(record.run_record.complete),
            record.get_parts("word_pairs"),
            record.numbers.get("fusion", {}).get("lexical", {}).get("coverage", 1.0),
            record.get_parts("semantic_background"),
            record.get_parts("named"),
            record.get_parts("bridged"),
            record.get_parts("title"),
            trace.plan.weights if trace.plan else {},
            {name: record.get_parts(name) for name in TERM_NAMES},
        ),
        chunks,
        profile.fusion,
    )
    reranked = _restore_reranking(
        record, expand_to_parents(fusion.candidates, profile.rerank.expand)
    )
    n_distinct = max(record.request.k, profile.rerank.keep)
    parents = fold_parents(reranked.parents, profile, n_distinct)
    linked_seeds = [EntitySeed("", key, 1.0) for key in record.run_record.linked]
    candidates = ChannelCandidates(
        hits,
        trace.channels,
        trace.channels_failed,
        frozenset(record.run_record.complete),
        None,
        linked_seeds,
        None,
        hops=record.response.path if isinstance(record.response, QueryResponse) else (),
    )
    ranking = Ranking(tuple(parents), candidates, fusion, reranked)
    return RetrievalResult(
        record.response.generation,
        trace.route,
        ranking,
        _restore_relevance(record, parents),
        facts=tuple(record.run_record.facts),
        graph_evidence=tuple(record.run_record.graph_evidence),
        assumptions=tuple(record.run_record.assumptions),
        missing_collections=tuple(record.run_record.missing_collections),
    )


def _restore_reranking(record: RecordedRun, parents: Sequence[RankedParent]) -> RerankResult:
    """Apply the recorded rerank scores; keep the fused order when there are none."""
    role = record.numbers.get("rerank", {}).get("role")
    scores, order = (
        {
            candidate.parent_id: value
            for candidate in record.candidates
            if (value := getattr(candidate, name)) is not None
        }
        for name in ("rerank_score", "rerank_order")
    )
    if role not in ("added", "replaces") or not scores:
        return RerankResult(tuple(parents), False, tuple(record.response.trace.notes), {})
    profile = record.run_record.profile.rerank
    offered, not_offered = parents[: profile.parents], parents[profile.parents :]
    offered_scores, offered_order = (
        {
            parent.parent_id: values[parent.parent_id]
            for parent in offered
            if parent.parent_id in values
        }
        for values in (scores, order)
    )
    return combine_scores(
        offered,
        not_offered,
        offered_scores,
        role,
        record.numbers["rerank"]["weight"],
        tuple(record.response.trace.notes),
        order=offered_order or None,
    )


def _restore_relevance(record: RecordedRun, parents: Sequence[RankedParent]) -> RelevanceDecision:
    recorded = record.numbers["refusal"]
    best, threshold = recorded["best"], recorded["threshold"]
    # Older records lack `refused`: derive it from the numbers.
    is_refused = not parents if best is None or threshold is None else best < threshold
    return RelevanceDecision(
        recorded.get("refused", is_refused),
        best,
        threshold,
        recorded["background"],
        recorded["reason"],
        recorded.get("probability"),
        tuple(recorded.get("missing_terms", ())),
        tuple(recorded.get("alternatives", ())),
    )


async def _redraft(
    result: RetrievalResult, record: RecordedRun, query: QueryContext, evidence: Evidence
) -> JudgedDraft:
    """Rebuild sentences, citations and verdict; copy the rest from the record."""
    recorded = record.run_record.draft
    if recorded is None:
        raise make_run_error(f"Run {record.response.run_id} has no recorded draft.")
    if record.is_quoted or recorded.reply is None:
        draft = quote_contexts(query, result, evidence)
    else:
        draft = await generate_answer(
            query,
            result,
            evidence,
            _RecordedChat(recorded.reply),
            # The recorded reply stands whatever the prompt.
            Prompt("", DEFAULT_CHAT_OPTIONS),
        )
    limitations, assumptions = tuple(recorded.limitations), tuple(recorded.assumptions)
    draft = replace(
        draft,
        model=recorded.model,
        limitations=limitations,
        assumptions=assumptions,
        calls=recorded.calls,
        tokens=recorded.tokens,
    )
    return _rejudge(draft, recorded, result, query)


def _rejudge(
    draft: AnswerDraft, recorded: RecordedDraft, result: RetrievalResult, query: QueryContext
) -> JudgedDraft:
    """Judge the draft with the recorded reply of the judge model."""
    if not draft.sentences:
        return JudgedDraft(draft)
    profile, reply = query.profile.judge, recorded.judge_reply
    answer = build_judged_answer(draft, result.read_passages, query.plan, query.redactor)
    reviews = parse_review(_restore_reply(reply), list_active_checks(profile)) if reply else {}
    verdict = decide(answer, profile, reviews, recorded.judge_error or NO_MODEL)
    if recorded.rejected is not None:
        verdict = verdict.model_copy(update={"rejected": recorded.rejected.verdict})
    return JudgedDraft(draft, Judgement(verdict))


def _restore_reply(reply: RecordedReply) -> ChatReply:
    return ChatReply(reply.data, reply.model, ChatUsage(reply.tokens), reply.calls)


class _RecordedChat:
    """ChatModel that returns the recorded reply."""

    def __init__(self, reply: RecordedReply) -> None:
        self._reply, self.model = reply, reply.model

    async def complete(
        self,
        system: str,
        user: str,
        schema: Mapping[str, Any],
        *,
        name: str,
        on_delta: OnDelta | None = None,
        options: ChatOptions = DEFAULT_CHAT_OPTIONS,
    ) -> ChatReply:
        return _restore_reply(self._reply)
