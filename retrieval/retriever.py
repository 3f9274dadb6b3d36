"""Search, query and dry run: the pipeline, wrapped with caching, publishing and timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from engines.language import estimate_tokens
from retrieval.answering.evidence import Evidence
from retrieval.pipeline import Goal, LiveSteps, PipelineResult, run_pipeline
from retrieval.profiles import ProfileCatalog
from retrieval.question.query_plan import QueryPlan, plan_query, rewrite_by_rules
from retrieval.ranking.passages import RankedParent
from retrieval.ranking.planning import rewrite_by_model
from retrieval.ranking.query_context import (
    ModelBudget,
    QueryContext,
    RetrievalResources,
    Stopwatch,
    format_readers_key,
)
from retrieval.ranking.retrieval_result import RetrievalResult, list_best_parents
from retrieval.redaction import Redactor
from retrieval.runs.answer_cache import AnswerCache, AnswerKey
from retrieval.runs.graph_summary import SummaryOutcome, build_summary_task
from retrieval.runs.recorded_run import RecordedRun
from retrieval.runs.run_record import (
    PublishRunEvent,
    QueryOutcome,
    build_query_answered,
    build_query_received,
    discard_event,
)
from schemas.budgets import NO_PRICES, PriceTable
from schemas.errors import NotFound, unknown_resource_error
from schemas.events import QueryAnswered
from schemas.ids import sha256_hex
from schemas.ports.engines import LanguageDetector
from schemas.ports.metering import use_meter
from schemas.ports.search import SnapshotVersion
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
from schemas.run_records import GraphSummary

QUICK_MS = 1_000.0
"""Well below the pause of an erasure between withdrawing a document and looking for its runs."""


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


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    vectors: Sequence[NDArray[np.float32]]
    dimension: int
    n_tokens: int
    """Estimated."""


class Retriever:
    """Search and query the index.

    Every method raises InvalidRequest (unknown profile), NotFound (unknown generation), and
    EngineUnavailable or DatabaseUnavailable when every channel fails. A single failed channel is
    named in the trace instead.
    """

    def __init__(
        self,
        resources: RetrievalResources,
        languages: LanguageDetector,
        profiles: ProfileCatalog,
        publish: PublishRunEvent = discard_event,
        *,
        answer_cache: AnswerCache | None = None,
        prices: PriceTable = NO_PRICES,
    ) -> None:
        self._resources, self._clock = resources, resources.clock
        self._languages, self._profiles = languages, profiles
        self._publish, self._answer_cache, self._prices = publish, answer_cache, prices

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
        response = (await self._run_cached(query_context, "results")).response
        assert isinstance(response, SearchResponse)
        return response

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
        outcome = await self._run_cached(query_context, "answer")
        response, answered = outcome.response, outcome.answered_event
        assert isinstance(response, QueryResponse)
        if not request.debug:
            return response
        debug = DebugInfo(candidates=answered.candidates, numbers=answered.numbers)
        return response.model_copy(update={"debug": debug})

    async def embed(self, caller: Principal, model: str, texts: Sequence[str]) -> EmbeddedTexts:
        """Embed texts as passages of the index. Raises NotFound for another model than its own."""
        embedder = self._resources.embedder
        if model != embedder.model:
            raise unknown_resource_error(
                "embedding model", repr(model), f"The index has vectors of {embedder.model!r}."
            )
        async with self._resources.acquire_slot(caller.tenant):
            embeddings = await embedder.embed(texts)
        vectors = [embedding.vector.astype(np.float32) for embedding in embeddings]
        return EmbeddedTexts(vectors, embedder.dimension, sum(map(estimate_tokens, texts)))

    async def dry_run(self, caller: Principal, request: SearchRequest) -> DryRun:
        """Run a query (for a QueryRequest) or a search without publishing anything."""
        # Nothing is published, so the run needs no id.
        query = self._build_context(caller, request, UUID(int=0))
        goal: Goal = "answer" if isinstance(request, QueryRequest) else "results"
        result = await self._run_pipeline(query, goal)
        query, retrieval, response = result.query, result.retrieval, result.response
        assert response is not None
        refused = (
            response.refused
            if isinstance(response, QueryResponse)
            else retrieval.relevance.refused and query.profile.answer.refuse
        )
        passages = [
            DryRunPassage(parent.parent_id, parent.document_id, parent.best.chunk.external_id)
            for parent in list_best_parents(query, retrieval.ranking)
        ]
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

    async def embed_question(
        self, caller: Principal, request: SearchRequest
    ) -> tuple[NDArray[np.float32], str | None]:
        """Return the vector of the question, as the semantic channel uses it, and its language."""
        query = replace(self._build_context(caller, request, UUID(int=0)), use_cache=True)
        embedding = await self._resources.get_embed(query)(query.plan.text_to_embed)
        return embedding.vector, query.plan.language

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

    async def summarize_graph(self, caller: Principal, run: RecordedRun) -> GraphSummary:
        """Summarize the graph around a recorded answer. Equal requests are cached as answers are.

        Raises InvalidRequest with code NO_GRAPH_FACTS or NO_CHAT_MODEL, and what
        `SummaryTask.write` raises.
        """
        task = build_summary_task(run, self._resources.chat)

        async def summarize() -> SummaryOutcome:
            async with (
                self._resources.acquire_slot(caller.tenant),
                self._resources.search.open_snapshot(None, caller.readers) as snapshot,
            ):
                version = SnapshotVersion(caller.tenant, snapshot.generation.name, snapshot.state)
            return SummaryOutcome(await task.write(self._prices), version)

        if self._answer_cache is None:
            return (await summarize()).response
        readers = format_readers_key(caller.readers)
        key = (caller.tenant, readers, run.response.generation, "summary", task.content_sha256)
        outcome, is_cached = await self._answer_cache.get_or_answer(key, summarize)
        unused = {"cached": True, "model_calls": 0, "tokens": 0, "cost": 0.0, "usage": []}
        changes = {"run_id": run.response.run_id, **(unused if is_cached else {})}
        return outcome.response.model_copy(update=changes)

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
            profile.plan,
            request.filters if infers_filters else None,
        )

    async def _run_cached(self, query_context: QueryContext, goal: Goal) -> QueryOutcome:
        """Return a cached outcome or run the query.

        The answered event is published for this run in either case.
        """
        cache_key, stopwatch = make_cache_key(query_context), query_context.stopwatch

        async def answer() -> QueryOutcome:
            outcome = self._build_outcome(await self._run_pipeline(query_context, goal))
            # An erasure awaits the events of quick answers: see `DocumentEraser`.
            if stopwatch.get_timings_ms()["total"] > QUICK_MS:
                await self._refuse_erased(outcome.answered_event)
            return outcome

        if self._answer_cache is None or cache_key is None:
            outcome = await answer()
        else:
            outcome, is_cached = await self._answer_cache.get_or_answer(cache_key, answer)
            # Each caller gets a run and an event of its own, although the answer was computed once.
            if is_cached:
                outcome = outcome.copy_for_run(
                    query_context.run_id, self._clock(), stopwatch.get_timings_ms()
                )
        # A cached answer may be that of a question outside of the experiment.
        arm = query_context.request.arm
        self._publish(outcome.answered_event.model_copy(update={"experiment": arm}))
        return outcome

    async def _refuse_erased(self, answered: QueryAnswered) -> None:
        """Raise NotFound if a document is erased meanwhile: nothing of it may be recorded."""
        documents = [UUID(candidate["document_id"]) for candidate in answered.candidates]
        if record := answered.run_record:
            documents += [evidence.document_id for evidence in record.graph_evidence]
        if await self._resources.search.find_erased(documents):
            raise NotFound(
                f"A document was erased while run {answered.run_id} read it.",
                code="RUN_ERASED",
                remedy="Send the query again.",
            )

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

    def _build_outcome(self, result: PipelineResult) -> QueryOutcome:
        query, retrieval, response = result.query, result.retrieval, result.response
        assert response is not None
        answered = build_query_answered(query, response, retrieval, result.draft, self._clock())
        # An answer that was written during an engine's failure must not be served after it. A cap
        # may have been reached by failures alone.
        has_engine_failure = result.draft is not None and result.draft.has_engine_failure
        is_cacheable = not has_engine_failure and not query.budget.stopped
        version = retrieval.snapshot_version if is_cacheable else None
        return QueryOutcome(response, query.redactor.redact(answered), version)


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
    addends = ("bigram", "named", "bridged", "title", "freshness", "metadata")
    weights = dict.fromkeys((*addends, "entity_overlap", "hop"), 0.0)
    fusion = profile.fusion.model_copy(update={**weights, "edge_types": {}})
    rerank = profile.rerank.model_copy(update={"reranker": "none"})
    return profile.model_copy(update={"fusion": fusion, "rerank": rerank})


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
