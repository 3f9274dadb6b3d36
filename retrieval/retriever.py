"""Search, query and dry run: the pipeline, wrapped with caching, publishing and timing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from uuid import UUID

from retrieval.answering.evidence import Evidence
from retrieval.model_budget import ModelBudget
from retrieval.pipeline import Goal, LiveSteps, PipelineResult, run_pipeline
from retrieval.profiles import ProfileCatalog
from retrieval.question.query_plan import QueryPlan, plan_query
from retrieval.question.standalone_question import rewrite_by_rules
from retrieval.ranking.model_planning import rewrite_by_model
from retrieval.ranking.parent_expansion import RankedParent, limit_per_document
from retrieval.ranking.query_context import (
    AcquireSlot,
    QueryContext,
    QueryEmbeddingCache,
    RetrievalResources,
    acquire_no_slot,
    format_readers_key,
)
from retrieval.ranking.reranking import DEFAULT_CACHE_BYTES, TokenStateReader, UnpackTokenStates
from retrieval.ranking.retrieval_result import RetrievalResult, get_numbers
from retrieval.redaction import Redactor
from retrieval.runs.answer_cache import AnswerCache, AnswerKey
from retrieval.runs.run_record import (
    PublishRunEvent,
    QueryOutcome,
    ResponseT,
    build_query_answered,
    build_query_received,
    build_run_record,
    discard_event,
)
from retrieval.timing import Clock, Stopwatch
from schemas.budgets import NO_PRICES, PriceTable
from schemas.events import QueryAnswered
from schemas.ids import sha256_hex
from schemas.ports.calibrations import CalibrationStore
from schemas.ports.engines import (
    BlobStore,
    ChatModel,
    Embedder,
    LanguageDetector,
    NameNormalizer,
    Reranker,
    SentenceSplitter,
)
from schemas.ports.graph import GraphServer
from schemas.ports.metering import use_meter
from schemas.ports.search import SearchIndex
from schemas.principals import Principal
from schemas.profiles import Profile
from schemas.questions import (
    DebugInfo,
    OnProgress,
    QueryRequest,
    QueryResponse,
    SearchRequest,
    SearchResponse,
    Trace,
    ignore_progress,
)


@dataclass(frozen=True, slots=True)
class DryRunPassage:
    parent_id: UUID
    document_id: UUID
    external_id: str | None


@dataclass(frozen=True, slots=True)
class DryRun:
    """Ranked passages (best first, before refusal and trimming) and the decision to refuse."""

    generation: str
    passages: Sequence[DryRunPassage]
    refused: bool
    trace: Trace


def list_ranked_passages(
    query_context: QueryContext, result: RetrievalResult
) -> list[DryRunPassage]:
    best = limit_per_document(result.ranking.parents, query_context.profile.fusion.per_document)[
        : query_context.request.k
    ]
    return [
        DryRunPassage(parent.parent_id, parent.document_id, parent.best.chunk.external_id)
        for parent in best
    ]


class Retriever:
    """Search and query the index.

    Every method raises InvalidRequest (unknown profile), NotFound (unknown generation), and
    EngineUnavailable or DatabaseUnavailable when every channel fails. A single failed channel is
    named in the trace instead.
    """

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
        planner: ChatModel | None = None,
        router: ChatModel | None = None,
        judge: ChatModel | None = None,
        calibrations: CalibrationStore | None = None,
        graph: GraphServer | None = None,
        acquire_slot: AcquireSlot = acquire_no_slot,
        prices: PriceTable = NO_PRICES,
        state_cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        self._resources = RetrievalResources(
            search,
            embedder,
            reranker,
            chat,
            sentences,
            TokenStateReader(blobs, unpack_states, state_cache_bytes),
            clock,
            embedding_cache,
            planner,
            router,
            judge,
            calibrations,
            graph,
            acquire_slot,
        )
        self._languages, self._names, self._profiles = languages, names, profiles
        self._clock, self._publish, self._answer_cache = clock, publish, answer_cache
        self._prices = prices

    async def search(
        self,
        caller: Principal,
        request: SearchRequest,
        run_id: UUID,
        *,
        generation: str | None = None,
    ) -> SearchResponse:
        """Return ranked parents without refusing or trimming.

        `generation` is the default when the request names none.
        """
        query_context = self._start_run(caller, request, run_id, generation)
        return (await self._run_cached(query_context, self._run_search)).response

    async def query(
        self,
        caller: Principal,
        request: QueryRequest,
        run_id: UUID,
        on_progress: OnProgress = ignore_progress,
        *,
        generation: str | None = None,
    ) -> QueryResponse:
        """Answer from cited passages, or refuse in the query's language.

        Reports each step to `on_progress` and, with `stream`, the words of the model.
        """
        query_context = self._start_run(caller, request, run_id, generation, on_progress)
        outcome = await self._run_cached(query_context, self._run_query)
        debug = DebugInfo(
            candidates=outcome.answered_event.candidates, numbers=outcome.answered_event.numbers
        )
        return (
            outcome.response.model_copy(update={"debug": debug})
            if request.debug
            else outcome.response
        )

    async def dry_run(self, caller: Principal, request: SearchRequest) -> DryRun:
        """Run a query (for a QueryRequest) or a search without publishing anything."""
        # Nothing is published, so the run needs no id.
        query = self._build_context(caller, request, UUID(int=0))
        if isinstance(request, QueryRequest):
            result = await self._run_pipeline(query, "answer")
        else:
            result = await self._run_pipeline(query, "results")
        query, retrieval, response = result.query, result.retrieval, result.response
        assert response is not None
        refused = (
            response.refused
            if isinstance(response, QueryResponse)
            else retrieval.relevance.refused and query.profile.answer.refuse
        )
        passages = list_ranked_passages(query, retrieval)
        return DryRun(retrieval.generation, passages, refused, response.trace)

    def fingerprint_scores(self, profile: str) -> str:
        """Return the fingerprint of the models that score with this profile."""
        return self._resources.fingerprint_scores(self._profiles.get(profile))

    async def weigh_evidence(
        self,
        caller: Principal,
        request: QueryRequest,
        excluded_documents: Mapping[UUID, int] = MappingProxyType({}),
    ) -> tuple[QueryPlan, RetrievalResult, Evidence]:
        """Run a query without publishing anything, and return the evidence behind its answer.

        No model writes or judges an answer. `excluded_documents` are left out, as if the index
        lacked them; the values are their numbers of chunks.
        """
        query = self._build_context(caller, request, UUID(int=0))
        answer = query.profile.answer.model_copy(update={"model": "extractive"})
        judge = query.profile.judge.model_copy(update={"model": "rules"})
        query = replace(
            query,
            profile=query.profile.model_copy(update={"answer": answer, "judge": judge}),
            excluded_documents=excluded_documents,
        )
        result = await self._run_pipeline(query, "answer")
        assert result.evidence is not None
        return result.query.plan, result.retrieval, result.evidence

    async def rank_documents(
        self, caller: Principal, request: SearchRequest, depth: int = 100
    ) -> list[tuple[UUID, str | None, float]]:
        """Return (document id, external id, score), each document by its best parent, before
        refusal and trimming.

        Documents of folded parents come right behind the parent they were folded under. A single
        requested channel is measured by itself: without word pairs and reranking.
        """
        query = self._build_context(caller, request, UUID(int=0))
        if request.channels is not None and len(request.channels) == 1:
            query = replace(query, profile=isolate_channel(query.profile))
        result = await self._run_pipeline(query, "ranking", depth)
        return collapse_to_documents(result.retrieval.ranking.parents)[:depth]

    def _start_run(
        self,
        caller: Principal,
        request: SearchRequest,
        run_id: UUID,
        generation: str | None,
        on_progress: OnProgress = ignore_progress,
    ) -> QueryContext:
        query_context = replace(
            self._build_context(caller, request, run_id, on_progress),
            generation=request.generation or generation,
            # Only published runs use the caches: evaluation and dry runs measure the full work.
            use_cache=True,
        )
        # Published before the work starts, so that a query that fails is on record too.
        received = build_query_received(run_id, caller, request, self._clock())
        self._publish(query_context.redactor.redact(received))
        return query_context

    def _build_context(
        self,
        caller: Principal,
        request: SearchRequest,
        run_id: UUID,
        on_progress: OnProgress = ignore_progress,
    ) -> QueryContext:
        stopwatch = Stopwatch(self._clock, on_progress)
        profile = self._profiles.select(request)
        turns = request.history if isinstance(request, QueryRequest) else []
        with stopwatch.measure_step("plan"):
            question = rewrite_by_rules(
                [turn.text for turn in turns if turn.role == "user"], request.query
            )
            query_plan = self._plan(request, profile, question)
        return QueryContext(
            caller,
            run_id,
            request,
            profile,
            query_plan,
            stopwatch,
            on_progress,
            request.generation,
            redactor=Redactor(
                profile.redaction, "\n".join((request.query, *(turn.text for turn in turns)))
            ),
            searches_left=profile.answer.further_searches,
            budget=ModelBudget(profile.budget, self._prices),
            standalone=question if question != request.query else None,
        )

    def _plan(self, request: SearchRequest, profile: Profile, question: str) -> QueryPlan:
        infers_filters = request.infer_filters and profile.plan.filters
        return plan_query(
            question,
            request.language,
            self._languages,
            self._names,
            profile.plan,
            request.filters if infers_filters else None,
        )

    async def _run_cached(
        self,
        query_context: QueryContext,
        answer_fresh: Callable[[QueryContext], Awaitable[QueryOutcome[ResponseT]]],
    ) -> QueryOutcome[ResponseT]:
        """Return a cached outcome or run the query.

        The answered event is published for this run in either case.
        """
        cache_key = make_cache_key(query_context)
        if self._answer_cache is None or cache_key is None:
            outcome = await answer_fresh(query_context)
        else:
            outcome, is_cached = await self._answer_cache.get_or_answer(
                cache_key, lambda: answer_fresh(query_context)
            )
            # Each caller gets a run and an event of its own, although the answer was computed once.
            outcome = (
                outcome.copy_for_run(
                    query_context.run_id, self._clock(), query_context.stopwatch.get_timings_ms()
                )
                if is_cached
                else outcome
            )
        self._publish(outcome.answered_event)
        return outcome

    async def _run_pipeline(
        self, query: QueryContext, goal: Goal, depth: int | None = None
    ) -> PipelineResult:
        with use_meter(query.budget):
            question, use = await rewrite_by_model(query, self._resources)
            if question is not None:
                query = replace(
                    query,
                    plan=self._plan(query.request, query.profile, question),
                    standalone=question if question != query.request.query else None,
                )
            uses = (use,) if use else ()
            steps = LiveSteps(self._resources)
            return await run_pipeline(query, steps, goal, model_uses=uses, depth=depth)

    async def _run_search(self, query: QueryContext) -> QueryOutcome[SearchResponse]:
        result = await self._run_pipeline(query, "results")
        assert isinstance(result.response, SearchResponse)
        version = None if result.query.budget.stopped else result.retrieval.snapshot_version
        return QueryOutcome(result.response, self._build_answered(result), version)

    async def _run_query(self, query: QueryContext) -> QueryOutcome[QueryResponse]:
        result = await self._run_pipeline(query, "answer")
        assert isinstance(result.response, QueryResponse)
        # An answer that was written during an engine's failure must not be served after it. A cap
        # may have been reached by failures alone.
        has_engine_failure = result.draft is not None and result.draft.has_engine_failure
        is_cacheable = not has_engine_failure and not result.query.budget.stopped
        version = result.retrieval.snapshot_version if is_cacheable else None
        return QueryOutcome(result.response, self._build_answered(result), version)

    def _build_answered(self, result: PipelineResult) -> QueryAnswered:
        query, retrieval = result.query, result.retrieval
        assert result.response is not None
        record = build_run_record(query, retrieval, result.draft)
        answered = build_query_answered(
            query.caller.tenant,
            result.response,
            retrieval.ranking,
            get_numbers(retrieval),
            self._clock(),
            record,
        )
        return query.redactor.redact(answered)


def make_cache_key(query: QueryContext) -> AnswerKey | None:
    """Return the cache key, or None for streamed answers, which are not cached."""
    # Without a name, the key would still match after another generation became live.
    if not query.use_cache or query.is_streamed or query.generation is None:
        return None
    return (
        query.caller.tenant,
        format_readers_key(query.caller.readers),
        query.generation,
        type(query.request).__name__,
        # A hash: the cache keeps no text of questions.
        # The profile too: its files may have changed since.
        sha256_hex(f"{query.request.model_dump_json()}{query.profile.model_dump_json()}".encode()),
    )


def isolate_channel(profile: Profile) -> Profile:
    """Return the profile without additions to a channel's scores, to measure it against others."""
    isolated: Profile = profile.model_copy(
        update={
            "fusion": profile.fusion.model_copy(
                update={
                    **dict.fromkeys(("bigram", "named", "bridged", "rrf_bridged", "title"), 0.0),
                    **dict.fromkeys(("freshness", "metadata", "entity_overlap", "hop"), 0.0),
                    "edge_types": {},
                }
            ),
            "rerank": profile.rerank.model_copy(update={"reranker": "none"}),
        }
    )
    return isolated


def collapse_to_documents(parents: Sequence[RankedParent]) -> list[tuple[UUID, str | None, float]]:
    """Return documents in the order of their best parents, those of folded parents right behind."""
    ranked: dict[UUID, tuple[UUID, str | None, float]] = {}
    for parent in parents:
        for item in (parent, *parent.duplicates):
            # Parents come best first, so a document keeps the place of its first one.
            ranked.setdefault(
                item.document_id, (item.document_id, item.best.chunk.external_id, parent.score)
            )
    return list(ranked.values())
