"""A question's way, to be read aloud: plan → route → {lexical, semantic, graph} at once → fuse → expand → rerank → refuse or trim → pack → answer → judge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from retrieval.answer.drafts import AnswerDraft
from retrieval.answer.extractive import extract_answer
from retrieval.answer.generative import generate_answer
from retrieval.answer.partial_answer import PartialAnswer
from retrieval.answer.quote_candidates import QuoteCandidate, extract_quote_candidates
from retrieval.answer_cache import AnswerCache, QueryEmbeddingCache, QueryOutcome, ResponseT
from retrieval.channels import RetrievalRequest, start_embedding
from retrieval.dry_run import DryRun, list_ranked_passages
from retrieval.parent_expansion import RankedParent
from retrieval.profiles import ProfileCatalog
from retrieval.query_context import QueryContext, RetrievalResult, attach_contexts, attach_results, get_numbers
from retrieval.query_plan import plan_query
from retrieval.ranking import Ranking, RankingResources, rank_parents
from retrieval.relevance import RelevanceDecision, check_relevance
from retrieval.response_builder import build_response, format_missing_collections, should_answer
from retrieval.routing import choose_channels, choose_route, escalate_route
from retrieval.run_events import PublishRunEvent, build_query_answered, build_query_received, discard_event
from retrieval.run_record import build_run_record
from retrieval.timing import Clock, Stopwatch
from retrieval.token_states import TokenStateReader, UnpackTokenStates
from schemas.errors import AnabranchError, InvalidModelOutput, InvalidRequest
from schemas.ports.engines import BlobStore, ChatModel, Embedder, LanguageDetector, NameNormalizer, QueryEmbedding, Reranker, SentenceSplitter
from schemas.ports.search import IndexSnapshot, SearchIndex, SnapshotVersion
from schemas.principals import Principal
from schemas.profiles import Profile
from schemas.questions import Channel, DebugInfo, OnProgress, QueryRequest, QueryResponse, Route, SearchRequest, SearchResponse, Trace, ignore_progress


class Retriever:
    """Answers questions. Every method raises InvalidRequest (unknown profile), NotFound (unknown generation), and EngineUnavailable or
    DatabaseUnavailable when no channel answers; a single lost channel is named in the trace instead."""

    def __init__(
        self,
        search: SearchIndex,
        embedder: Embedder,
        reranker: Reranker | None,
        chat: ChatModel | None,
        blobs: BlobStore,
        languages: LanguageDetector,
        sentences: SentenceSplitter,
        names: NameNormalizer,
        unpack_states: UnpackTokenStates,
        profiles: ProfileCatalog,
        clock: Clock,
        publish: PublishRunEvent = discard_event,
        *,
        answer_cache: AnswerCache | None = None,
        embedding_cache: QueryEmbeddingCache | None = None,
    ) -> None:
        self._search, self._embedder, self._reranker, self._chat = search, embedder, reranker, chat
        self._languages, self._sentences, self._names = languages, sentences, names
        self._answer_cache, self._embedding_cache = answer_cache, embedding_cache
        self._states, self._profiles, self._clock, self._publish = TokenStateReader(blobs, unpack_states), profiles, clock, publish

    async def search(self, caller: Principal, request: SearchRequest, run_id: UUID, *, generation: str | None = None) -> SearchResponse:
        """Ranked parents without an answer: neither refused nor trimmed. `generation` is asked where the request names none."""
        query_context = self._start_run(caller, request, run_id, generation)
        return (await self._run_cached(query_context, SearchResponse, self._run_search)).response

    async def query(
        self, caller: Principal, request: QueryRequest, run_id: UUID, on_progress: OnProgress = ignore_progress, *, generation: str | None = None
    ) -> QueryResponse:
        """An answer from cited passages, or a refusal in the question's language. Steps are told as they happen, and with `stream` the model's words."""
        query_context = self._start_run(caller, request, run_id, generation, on_progress)
        outcome = await self._run_cached(query_context, QueryResponse, self._run_query)
        debug = DebugInfo(candidates=outcome.answered_event.candidates, numbers=outcome.answered_event.numbers)
        return outcome.response.model_copy(update={"debug": debug}) if request.debug else outcome.response

    async def dry_run(self, caller: Principal, request: SearchRequest) -> DryRun:
        """As `query` for a QueryRequest and as `search` for any other, but nothing of it is published."""
        query_context = self._build_context(caller, request, UUID(int=0))
        if not isinstance(request, QueryRequest):
            result = await self._retrieve(query_context, read_contexts=False)
            refused = result.relevance.refused and query_context.profile.answer.refuse
            return DryRun(result.generation, list_ranked_passages(query_context, result), refused, self._build_trace(query_context, result, None))
        result = await self._retrieve(query_context, read_contexts=True)
        draft = await self._answer_timed(query_context, result) if should_answer(query_context, result) else None
        response = build_response(query_context, result, draft, lambda: self._build_trace(query_context, result, draft))
        return DryRun(result.generation, list_ranked_passages(query_context, result), response.refused, response.trace)

    async def rank_documents(self, caller: Principal, request: SearchRequest, depth: int = 100) -> list[tuple[UUID, str | None, float]]:
        """(document id, external id, score), each document by its best parent, before refusal and trimming; a folded document comes right behind the one
        it was folded under. A single requested channel is measured by itself: no word pairs, no reranking."""
        query_context = self._build_context(caller, request, UUID(int=0))
        if request.channels is not None and len(request.channels) == 1:
            query_context = replace(query_context, profile=isolate_channel(query_context.profile))
        chosen_route = choose_route(request, query_context.plan)
        async with self._search.open_snapshot(request.generation, caller.readers) as snapshot:
            ranking = await self._rank(query_context, chosen_route, snapshot, depth)
        return collapse_to_documents(ranking.parents)[:depth]

    def _start_run(
        self, caller: Principal, request: SearchRequest, run_id: UUID, generation: str | None, on_progress: OnProgress = ignore_progress
    ) -> QueryContext:
        query_context = replace(self._build_context(caller, request, run_id, on_progress), generation=request.generation or generation, use_cache=True)
        self._publish(build_query_received(run_id, caller, request, self._clock()))
        return query_context

    def _build_context(self, caller: Principal, request: SearchRequest, run_id: UUID, on_progress: OnProgress = ignore_progress) -> QueryContext:
        stopwatch = Stopwatch(self._clock, on_progress)
        profile = self._profiles.get(request.profile)
        with stopwatch.measure_step("plan"):
            query_plan = plan_query(request.query, request.language, self._languages, self._names)
        return QueryContext(caller, run_id, request, profile, query_plan, stopwatch, on_progress, request.generation)

    async def _run_cached(
        self, query_context: QueryContext, response_type: type[ResponseT], answer_fresh: Callable[[QueryContext], Awaitable[QueryOutcome[ResponseT]]]
    ) -> QueryOutcome[ResponseT]:
        """Published for its own run, also where it was found in memory."""
        if self._answer_cache is None or query_context.cache_key is None:
            outcome = await answer_fresh(query_context)
        else:
            outcome, is_cached = await self._answer_cache.get_or_answer(query_context.cache_key, response_type, lambda: answer_fresh(query_context))
            outcome = outcome.copy_for_run(query_context.run_id, self._clock(), query_context.stopwatch.get_timings_ms()) if is_cached else outcome
        self._publish(outcome.answered_event)
        return outcome

    async def _run_search(self, query_context: QueryContext) -> QueryOutcome[SearchResponse]:
        result = await self._retrieve(query_context, read_contexts=False)
        trace = self._build_trace(query_context, result, None)
        response = SearchResponse(run_id=query_context.run_id, generation=result.generation, results=list(result.results), trace=trace)
        answered_event = build_query_answered(
            query_context.caller.tenant, response, result.ranking, get_numbers(result), self._clock(), build_run_record(query_context, result, None)
        )
        return QueryOutcome(response, answered_event, result.snapshot_version)

    async def _run_query(self, query_context: QueryContext) -> QueryOutcome[QueryResponse]:
        result = await self._retrieve(query_context, read_contexts=True)
        draft = await self._answer_timed(query_context, result) if should_answer(query_context, result) else None
        response = build_response(query_context, result, draft, lambda: self._build_trace(query_context, result, draft))
        answered_event = build_query_answered(
            query_context.caller.tenant, response, result.ranking, get_numbers(result), self._clock(), build_run_record(query_context, result, draft)
        )
        return QueryOutcome(response, answered_event, None if draft and draft.has_engine_failure else result.snapshot_version)

    async def _retrieve(self, query_context: QueryContext, *, read_contexts: bool) -> RetrievalResult:
        """Again with all channels, once, where a rule had chosen fewer and they found nothing that suits."""
        chosen_route = choose_route(query_context.request, query_context.plan)
        result = await self._retrieve_by_route(query_context, chosen_route, read_contexts)
        escalated_route = escalate_route(chosen_route, f"{chosen_route.mode} alone: {result.relevance.reason}") if result.relevance.refused else None
        if escalated_route is None:
            return result
        escalated_result = await self._retrieve_by_route(query_context, escalated_route, read_contexts)
        return replace(escalated_result, snapshot_version=result.snapshot_version and escalated_result.snapshot_version and result.snapshot_version)

    async def _retrieve_by_route(self, query_context: QueryContext, chosen_route: Route, read_contexts: bool) -> RetrievalResult:
        async with self._search.open_snapshot(query_context.generation, query_context.caller.readers) as snapshot:
            ranking = await self._rank(query_context, chosen_route, snapshot, None)
            relevance = self._check_relevance(query_context, ranking)
            snapshot_version = SnapshotVersion(query_context.caller.tenant, snapshot.generation.name, snapshot.state) if ranking.is_complete else None
            collections = query_context.request.filters.collections
            missing_collections = tuple(await snapshot.find_missing_collections(query_context.caller.tenant, collections)) if collections else ()
            result = RetrievalResult(
                snapshot.generation.name, chosen_route, ranking, relevance, missing_collections=missing_collections, snapshot_version=snapshot_version
            )
            with query_context.stopwatch.measure_step("read"):
                return await (attach_contexts if read_contexts else attach_results)(query_context, result, snapshot)

    async def _rank(self, query_context: QueryContext, chosen_route: Route, snapshot: IndexSnapshot, depth: int | None) -> Ranking:
        channels = choose_channels(chosen_route, query_context.request, query_context.profile)
        if not channels:
            raise InvalidRequest("Every channel that was asked for is switched off.", code="NO_CHANNEL", remedy="Name other channels, or another profile.")
        reranker = self._reranker if query_context.profile.rerank.reranker == "default" else None
        needs_embedding = "semantic" in channels or (reranker is not None and reranker.role == "added")
        embed = (
            partial(self._embedding_cache.embed_query, query_context.caller)
            if self._embedding_cache and query_context.use_cache
            else self._embedder.embed_query
        )
        embedding_task = start_embedding(embed, query_context.plan.question, is_needed=needs_embedding)
        retrieval_request = RetrievalRequest(
            query_context.caller.tenant,
            query_context.plan,
            query_context.profile,
            query_context.request.filters,
            _compute_candidate_limits(query_context, depth),
        )
        try:
            resources = RankingResources(snapshot, reranker, self._states, self._clock, query_context.stopwatch)
            return await rank_parents(
                resources, retrieval_request, channels, embedding_task, depth or max(query_context.request.k, query_context.profile.rerank.keep), depth
            )
        finally:
            await _cancel_embedding(embedding_task)

    def _check_relevance(self, query_context: QueryContext, ranking: Ranking) -> RelevanceDecision:
        reranker = self._reranker if ranking.reranked and ranking.reranked.is_reranked else None
        return check_relevance(ranking.parents, query_context.plan, ranking.idf, reranker, ranking.candidates.embedded_query, query_context.profile.answer)

    async def _answer_timed(self, query_context: QueryContext, result: RetrievalResult) -> AnswerDraft:
        with query_context.stopwatch.measure_step("answer"):
            return await self._write_draft(query_context, result)

    async def _write_draft(self, query_context: QueryContext, result: RetrievalResult) -> AnswerDraft:
        """By the chat model where there is one; quoted where there is none, or where it does not answer."""
        quote_candidates = extract_quote_candidates(result.contexts, self._sentences)
        if self._chat is not None and query_context.profile.answer.model == "default":
            try:
                async with asyncio.timeout(query_context.profile.answer.timeout_s):
                    return await generate_answer(
                        result.contexts,
                        quote_candidates,
                        query_context.plan,
                        self._chat,
                        PartialAnswer(query_context.on_progress).feed if query_context.is_streamed else None,
                    )
            except (AnabranchError, TimeoutError) as error:
                return _mark_fallback(
                    await self._extract_answer(query_context, result, quote_candidates), self._chat.model, error, query_context.profile.answer.timeout_s
                )
        return await self._extract_answer(query_context, result, quote_candidates)

    async def _extract_answer(self, query_context: QueryContext, result: RetrievalResult, quote_candidates: Sequence[QuoteCandidate]) -> AnswerDraft:
        """Servers that were away for the ranking are not asked again."""
        embedded_query, reranked = result.ranking.candidates.embedded_query, result.ranking.reranked
        is_reranker_usable = self._reranker is not None and (reranked.is_reranked if reranked else self._reranker.role == "added")
        return await extract_answer(
            quote_candidates,
            query_context.plan,
            embedded_query,
            self._embedder,
            self._reranker if is_reranker_usable else None,
            query_context.profile.rerank.timeout_s,
        )

    def _build_trace(self, query_context: QueryContext, result: RetrievalResult, draft: AnswerDraft | None) -> Trace:
        ranking, candidates = result.ranking, result.ranking.candidates
        is_reranked = ranking.reranked is not None and ranking.reranked.is_reranked
        models = {"embed": self._embedder.model} if candidates.embedded_query else {}
        return Trace(
            generation=result.generation,
            profile=query_context.profile.name,
            route=result.route,
            channels=dict(candidates.traces),
            channels_used=list(candidates.traces),
            channels_failed=dict(candidates.failed),
            lexical=candidates.lexical.exactness if candidates.lexical else None,
            timings_ms=query_context.stopwatch.get_timings_ms(),
            reranker=self._reranker.name if self._reranker and is_reranked else None,
            max_rerank_score=result.relevance.best if is_reranked else None,
            threshold=result.relevance.threshold,
            calibrated=False,
            models={**models, **({"answer": draft.model} if draft else {})},
            model_calls=draft.calls if draft else 0,
            tokens=draft.tokens if draft else 0,
            notes=[*ranking.notes, *format_missing_collections(result)],
        )


async def _cancel_embedding(embedding_task: asyncio.Task[QueryEmbedding] | None) -> None:
    """No task outlives its question; what it raised has been told by the channel that needed it."""
    if embedding_task is not None:
        embedding_task.cancel()
        await asyncio.gather(embedding_task, return_exceptions=True)


def _compute_candidate_limits(query_context: QueryContext, depth: int | None) -> dict[Channel, int]:
    profile, min_candidates = query_context.profile, max(depth or 0, query_context.request.k)
    return {
        "lexical": max(profile.lexical.k, min_candidates),
        "semantic": max(profile.semantic.k, min_candidates),
        "graph": max(profile.graph.k, min_candidates),
    }


def _mark_fallback(draft: AnswerDraft, model: str, error: AnabranchError | TimeoutError, timeout_s: float) -> AnswerDraft:
    """The quoted answer, which says why it is not a written one and what the failure cost."""
    reason = error.detail if isinstance(error, AnabranchError) else f"timed out after {timeout_s:g} s"
    note = f"The chat model {model} gave no usable answer ({reason}); the answer is quoted instead."
    model_error = error if isinstance(error, InvalidModelOutput) else None
    return replace(
        draft,
        limitations=(note, *draft.limitations),
        calls=model_error.calls if model_error else 1,
        tokens=model_error.tokens if model_error else 0,
        has_engine_failure=True,
    )


def isolate_channel(profile: Profile) -> Profile:
    """A channel by itself, as it is measured against others: nothing added to its scores."""
    return profile.model_copy(
        update={"fusion": profile.fusion.model_copy(update={"bigram": 0.0}), "rerank": profile.rerank.model_copy(update={"reranker": "none"})}
    )


def collapse_to_documents(parents: Sequence[RankedParent]) -> list[tuple[UUID, str | None, float]]:
    """Documents in the order of their best parents, those of folded parents right behind."""
    ranked: dict[UUID, tuple[UUID, str | None, float]] = {}
    for parent in parents:
        for item in (parent, *parent.duplicates):
            ranked.setdefault(item.document_id, (item.document_id, item.best.chunk.external_id, parent.score))
    return list(ranked.values())
