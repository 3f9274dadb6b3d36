"""The eleven steps of a query, in order.

plan → route → retrieve → fuse → expand → rerank → check relevance → pack → weigh evidence → answer
→ judge. A search that found too little runs once more, wider.
Retrieving begins with linking the documents that the question names; fusing ends with following
the names in the best passages.
Caching, publishing, dry runs and evaluation wrap them from outside, in `retrieval.retriever`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar
from uuid import UUID

from retrieval.answering.answer_drafts import AnswerDraft
from retrieval.answering.drafting import weigh_contexts, write_judged_draft
from retrieval.answering.evidence import Evidence
from retrieval.answering.judge import JudgedDraft
from retrieval.answering.response_builder import build_response, build_trace
from retrieval.question.query_plan import QueryPlan, narrow_question
from retrieval.question.stated_filters import (
    find_ask,
    format_assumption,
    format_dropped_filter,
    format_filter_assumption,
)
from retrieval.ranking.bridges import follow_bridges
from retrieval.ranking.candidate_retrieval import (
    ChannelCandidates,
    build_fusion_input,
    find_links,
    retrieve_chunks,
)
from retrieval.ranking.entity_aliases import (
    apply_aliases,
    format_alias_assumption,
    link_aliases,
    link_stated_aliases,
)
from retrieval.ranking.fusion import (
    Fusion,
    FusionInput,
    compute_word_evidence,
    fuse_candidates,
    score_terms,
)
from retrieval.ranking.graph_facts import retrieve_facts, retrieve_graph_evidence
from retrieval.ranking.passages import RankedParent, expand_to_parents, fold_parents
from retrieval.ranking.planning import (
    ModelUse,
    choose_route,
    drop_graph,
    escalate_query,
    plan_by_model,
    route_by_model,
    write_cypher_by_model,
)
from retrieval.ranking.query_context import QueryContext, RetrievalResources
from retrieval.ranking.relevance import check_relevance
from retrieval.ranking.reranking import RerankResult, rerank_parents, weigh_tokens
from retrieval.ranking.retrieval_result import (
    PassageReader,
    Ranking,
    RetrievalResult,
    attach_contexts,
    attach_results,
    date_result,
)
from schemas.channels import GraphProfile
from schemas.errors import AnabranchError
from schemas.ports.engines import TokenWeighting
from schemas.ports.search import ChunkView, IndexSnapshot
from schemas.questions import QueryRequest, QueryResponse, Route, SearchResponse, Trace

Goal = Literal["ranking", "results", "answer"]
SnapshotT = TypeVar("SnapshotT", bound=PassageReader)


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """`response` is None for a ranking, `evidence` unless the goal is an answer, and `draft` also
    for a refusal.

    `query` has the plan that was used: for an addressed document, of the rest of the question.
    """

    query: QueryContext
    retrieval: RetrievalResult
    response: SearchResponse | QueryResponse | None = None
    draft: JudgedDraft | None = None
    evidence: Evidence | None = None

    def combine_versions(self, earlier: RetrievalResult) -> PipelineResult:
        """Date the result to the earlier of two snapshots, so that a change between them is not
        missed.
        """
        version = earlier.snapshot_version if self.retrieval.snapshot_version else None
        return replace(self, retrieval=replace(self.retrieval, snapshot_version=version))


class PipelineSteps(Protocol[SnapshotT]):
    """The steps that read the index and call engines.

    `LiveSteps` does, and a rerun answers from the record of a run (`retrieval.runs.rerun`).
    """

    async def plan_and_route(
        self, query: QueryContext
    ) -> tuple[QueryContext, Route, tuple[ModelUse, ...]]:
        """Refine the plan, and choose the channels."""

    def open_snapshot(self, query: QueryContext) -> AbstractAsyncContextManager[SnapshotT]: ...

    async def search(
        self, query: QueryContext, snapshot: SnapshotT, route: Route, depth: int | None
    ) -> tuple[QueryContext, RetrievalResult]:
        """Rank parents and check their relevance. The query has the plan that was searched."""

    async def add_graph_and_facts(
        self,
        query: QueryContext,
        question: QueryContext,
        result: RetrievalResult,
        snapshot: SnapshotT,
    ) -> RetrievalResult:
        """Add the version of the index, and what graph and facts say about the question."""

    async def weigh(
        self, query: QueryContext, result: RetrievalResult
    ) -> tuple[Evidence, RetrievalResult]:
        """Score the sentences of the contexts, and decide by them whether to answer."""

    async def write(
        self, query: QueryContext, result: RetrievalResult, evidence: Evidence
    ) -> JudgedDraft | None:
        """Write and judge the draft; None when the contexts do not suit."""

    def build_trace(
        self, query: QueryContext, result: RetrievalResult, draft: JudgedDraft | None
    ) -> Trace: ...


async def run_pipeline(
    query: QueryContext,
    steps: PipelineSteps[SnapshotT],
    goal: Goal,
    *,
    route: Route | None = None,
    model_uses: tuple[ModelUse, ...] = (),
    answer_plan: QueryPlan | None = None,
    depth: int | None = None,
) -> PipelineResult:
    """Run the eleven steps, or those that `goal` needs: up to 7 for a ranking, up to 8 for search
    results.

    Reads one snapshot of the index. With a `depth`, every channel is deepened to that many
    documents. With an `answer_plan`, `query.plan` is for other words than the question's, and that
    plan is for answering it.
    """
    # One function, so that the steps stand in their order on one page.
    # An escalated run passes its route, and its plan is made.
    if route is None:
        query, route, planning_uses = await steps.plan_and_route(query)
        model_uses = (*model_uses, *planning_uses)
    original_query = query
    if query.plan.stated is not None:
        request = query.request.model_copy(update={"filters": query.plan.stated.filters})
        query = replace(query, request=request)

    # One snapshot for all reads, so that no result mixes two revisions of a document.
    async with steps.open_snapshot(query) as snapshot:
        query, retrieval = await steps.search(query, snapshot, route, depth)
        retrieval = replace(retrieval, model_uses=model_uses)
        if goal == "ranking":
            return PipelineResult(query, retrieval)

        # 8. Pack: read the best parents as contexts of an answer, or as search results.
        attach = attach_contexts if goal == "answer" else attach_results
        with query.stopwatch.measure_step("read"):
            retrieval = await steps.add_graph_and_facts(query, original_query, retrieval, snapshot)
            retrieval = await attach(query, retrieval, snapshot)

    if answer_plan is not None:
        query = replace(query, plan=answer_plan)
    # 9. Weigh the evidence: score the sentences, and refuse when they hardly hold an answer.
    evidence = None
    if goal == "answer":
        with query.stopwatch.measure_step("evidence"):
            evidence, retrieval = await steps.weigh(query, retrieval)

    # Too little was found: steps 3 to 9 run once more, in all channels and with more candidates.
    wider = escalate_query(
        retrieval.route, original_query, retrieval.relevance, retrieval.ranking.candidates, goal
    )
    if wider is not None and answer_plan is None:
        wider_query, wider_route = wider
        escalated = await run_pipeline(
            wider_query, steps, goal, route=wider_route, model_uses=model_uses
        )
        return escalated.combine_versions(retrieval)
    if evidence is None:
        results = SearchResponse(
            run_id=query.run_id,
            generation=retrieval.generation,
            results=list(retrieval.results),
            trace=steps.build_trace(query, retrieval, None),
        )
        return PipelineResult(query, retrieval, query.redactor.redact_response(results))

    # 10. Answer from the contexts, and 11. judge the draft, which may be written once more.
    # The snapshot is closed: a chat model may take minutes.
    draft = await steps.write(query, retrieval, evidence)

    # The model may have asked for another search: steps 3 to 11 run again with its words.
    if draft is not None and draft.draft.search and query.searches_left:
        asked = replace(original_query, plan=answer_plan or original_query.plan)
        further = await _search_further(asked, draft.draft, steps, retrieval.route, model_uses)
        return further.combine_versions(retrieval)

    # Build the response: an answer, or a refusal.
    answer = build_response(
        query, retrieval, draft, lambda: steps.build_trace(query, retrieval, draft)
    )
    return PipelineResult(query, retrieval, query.redactor.redact_response(answer), draft, evidence)


async def _search_further(
    query: QueryContext,
    draft: AnswerDraft,
    steps: PipelineSteps[SnapshotT],
    route: Route,
    model_uses: tuple[ModelUse, ...],
) -> PipelineResult:
    """Answer from a search for the words that the model asks for."""
    reason = f"{route.reason}; {draft.model} asked to search for {draft.search!r}"
    use = ModelUse("answer", draft.model, draft.prompt_sha256 or "")
    return await run_pipeline(
        replace(
            query,
            plan=narrow_question(query.plan, draft.search),
            searches_left=query.searches_left - 1,
        ),
        steps,
        "answer",
        route=route.model_copy(update={"reason": reason}),
        model_uses=(*model_uses, use),
        answer_plan=replace(query.plan, further=draft.search),
    )


@dataclass(frozen=True, slots=True)
class LiveSteps:
    """The steps of a query over the index and the engines."""

    resources: RetrievalResources

    async def plan_and_route(
        self, query: QueryContext
    ) -> tuple[QueryContext, Route, tuple[ModelUse, ...]]:
        # 1. Plan: `query.plan` holds what the rules of `plan_query` found; a model may refine it.
        refined_plan, plan_use = await plan_by_model(query, self.resources)
        query = replace(query, plan=refined_plan)
        # 2. Route: choose the channels. A model that is asked answers before the snapshot opens.
        decision = choose_route(query.request, query.plan, query.profile.route)
        route, route_use = await route_by_model(query, self.resources, decision)
        cypher, cypher_use = await write_cypher_by_model(query, self.resources, route)
        query = replace(query, plan=replace(query.plan, cypher=cypher))
        uses = (plan_use, route_use, cypher_use)
        return query, route, tuple(use for use in uses if use is not None)

    @asynccontextmanager
    async def open_snapshot(self, query: QueryContext) -> AsyncIterator[IndexSnapshot]:
        async with (
            # The slot first: an open snapshot holds connections. None are held while a model
            # generates.
            self.resources.acquire_slot(query.caller.tenant),
            self.resources.search.open_snapshot(query.generation, query.caller.readers) as snapshot,
        ):
            yield snapshot

    async def search(
        self, query: QueryContext, snapshot: IndexSnapshot, route: Route, depth: int | None
    ) -> tuple[QueryContext, RetrievalResult]:
        query = await self.resources.calibrate(query, snapshot.generation.name)
        # 3. Link the entities that the question names by an alias, and the documents that it names;
        # the words that address them are cut.
        aliases, notes = await link_aliases(query, snapshot)
        if aliases:
            query = replace(query, plan=apply_aliases(query.plan, aliases))
        links = await find_links(query, snapshot)
        stated_aliases, stated_notes = await link_stated_aliases(query, snapshot, links)
        if stated_aliases:
            query = replace(query, plan=apply_aliases(query.plan, stated_aliases))
        if route.decided_by == "rules" and not links and route.escalated_from is None:
            route = await drop_graph(query, snapshot, route)
        question = query.plan.question
        asks = (find_ask(question, link.span) for link in links if link.is_address)
        if ask := next(asks, None):
            query = replace(query, plan=narrow_question(query.plan, ask))
        plan, profile = query.plan, query.profile

        # Retrieve candidates from all channels at once, and load their chunks.
        candidates, chunks = await retrieve_chunks(
            query, self.resources, snapshot, route, depth, links
        )

        # 4. Fuse the channels' scores into one.
        candidates, inputs, fusion = await self._fuse(query, snapshot, candidates, chunks)

        # 5. Expand child chunks to their parents.
        parents = expand_to_parents(fusion.candidates, profile.rerank.expand)

        # 6. Rerank the best parents, and fold near-duplicates.
        reranked = await self._rerank(query, snapshot, parents, candidates, inputs)
        # Near-duplicates are compared in pairs, so only until this many distinct parents are found.
        n_distinct = depth or max(query.request.k, profile.rerank.keep)
        ranked = fold_parents(reranked.parents if reranked else parents, profile, n_distinct)
        ranking = Ranking(tuple(ranked), candidates, fusion, reranked)

        # 7. Check relevance: refuse rather than answer from passages that do not fit.
        # The engine's threshold applies to its own scores only, not to fused ones.
        scorer = self.resources.reranker if reranked and reranked.is_reranked else None
        relevance = check_relevance(
            ranked, plan, ranking.idf, scorer, candidates.embedded_query, profile.answer
        )
        assumptions = [
            *([format_filter_assumption(plan.stated)] if plan.stated else []),
            *([format_dropped_filter(plan.dropped)] if plan.dropped else []),
            *map(format_alias_assumption, (*aliases, *stated_aliases)),
            *(format_assumption(link, question) for link in candidates.links),
        ]
        return query, RetrievalResult(
            snapshot.generation.name,
            route,
            ranking,
            relevance,
            # The question may name the same thing twice.
            assumptions=tuple(dict.fromkeys(assumptions)),
            notes=(*notes, *stated_notes),
        )

    async def add_graph_and_facts(
        self,
        query: QueryContext,
        question: QueryContext,
        result: RetrievalResult,
        snapshot: IndexSnapshot,
    ) -> RetrievalResult:
        if isinstance(query.request, QueryRequest):
            found = [candidate.chunk.chunk_id for candidate in result.ranking.fusion.candidates]
            seeds = result.ranking.candidates.linked_seeds
            evidence, notes = await retrieve_graph_evidence(query, snapshot, seeds, found)
            result = replace(result, graph_evidence=evidence, notes=(*result.notes, *notes))
        result = await date_result(query, result, snapshot)
        # By the question itself, even where the plan has other words.
        if facts := await retrieve_facts(question, snapshot, self.resources.clock()):
            result = replace(result, facts=facts, snapshot_version=None)
        return result

    async def weigh(
        self, query: QueryContext, result: RetrievalResult
    ) -> tuple[Evidence, RetrievalResult]:
        return await weigh_contexts(query, result, self.resources)

    async def write(
        self, query: QueryContext, result: RetrievalResult, evidence: Evidence
    ) -> JudgedDraft | None:
        return await write_judged_draft(query, result, evidence, self.resources)

    def build_trace(
        self, query: QueryContext, result: RetrievalResult, draft: JudgedDraft | None
    ) -> Trace:
        return build_trace(query, result, draft, self.resources)

    async def _fuse(
        self,
        query: QueryContext,
        snapshot: IndexSnapshot,
        candidates: ChannelCandidates,
        chunks: Mapping[UUID, ChunkView],
    ) -> tuple[ChannelCandidates, FusionInput, Fusion]:
        """Fuse the candidates, with those that bridges lead to, and with the terms of the profile.

        The candidates returned have the hops of the bridges.
        """
        profile = query.profile.fusion
        with query.stopwatch.measure_step("fuse"):
            lexical = snapshot.generation.config.lexical
            inputs = build_fusion_input(query, candidates, chunks, lexical)
            fusion = fuse_candidates(inputs, chunks, profile)
        # An address says that the answer is within the document: bridges cost cuad .013 nDCG@10.
        has_address = any(link.is_address for link in candidates.links)
        if profile.bridged and "graph" in candidates.traces and not has_address:
            with query.stopwatch.measure_step("bridge"):
                candidates, bridged, reached = await self._follow_bridges(
                    query, snapshot, candidates, fusion, chunks
                )
                if bridged:
                    chunks = {**chunks, **reached}
                    inputs = replace(inputs, bridged=bridged)
                    fusion = fuse_candidates(inputs, chunks, profile)
        if profile.term_weights:
            with query.stopwatch.measure_step("terms"):
                graph = GraphProfile.model_validate(query.profile.get_channel("graph"))
                seeds, today = candidates.linked_seeds, self.resources.clock().date()
                facts = await snapshot.fetch_ranking_facts(
                    query.caller.tenant,
                    list(chunks),
                    seeds,
                    hops=graph.hops,
                    fan_out=graph.fan_out,
                )
                terms = score_terms(facts, query.plan, seeds, profile, today)
            inputs = replace(inputs, terms=terms)
            fusion = fuse_candidates(inputs, chunks, profile)
        return candidates, inputs, fusion

    async def _follow_bridges(
        self,
        query: QueryContext,
        snapshot: IndexSnapshot,
        candidates: ChannelCandidates,
        fusion: Fusion,
        chunks: Mapping[UUID, ChunkView],
    ) -> tuple[ChannelCandidates, Mapping[UUID, float], Mapping[UUID, ChunkView]]:
        """Follow bridges within the time of the graph channel; a failure costs only the bridges."""
        timeout_s = query.profile.get_channel("graph").timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                scores, reached, hops = await follow_bridges(
                    query, self.resources, snapshot, candidates, fusion, chunks
                )
                return replace(candidates, hops=hops), scores, reached
        except AnabranchError as error:
            reason = f"{error.code}: {error.detail}"
        except TimeoutError:
            reason = f"TIMED_OUT: Timed out after {timeout_s:g} s."
        return replace(candidates, failed={**candidates.failed, "graph": reason}), {}, {}

    async def _rerank(
        self,
        query: QueryContext,
        snapshot: IndexSnapshot,
        parents: Sequence[RankedParent],
        candidates: ChannelCandidates,
        inputs: FusionInput,
    ) -> RerankResult | None:
        reranker = self.resources.get_reranker(query.profile)
        if reranker is None or not parents:
            return None
        plan, profile = query.plan, query.profile.rerank
        idf = candidates.lexical.idf if candidates.lexical else {}
        weighs_words = profile.word_idf == "always" or (
            profile.word_idf == "unnamed" and not inputs.named
        )

        async def weigh_words() -> TokenWeighting | None:
            [spans] = await self.resources.embedder.locate_tokens([plan.text_to_embed])
            states = candidates.embedded_query.states if candidates.embedded_query else None
            # A long question is cut before the embedding.
            if states is None or len(spans) != len(states):
                return None
            weights = weigh_tokens(plan.text_to_embed, spans, plan.language, idf)
            share = compute_word_evidence(inputs, query.profile.fusion)
            return None if weights is None else TokenWeighting(weights, profile.background, share)

        with query.stopwatch.measure_step("rerank"):
            reranked = await rerank_parents(
                parents,
                plan.question,
                candidates.embedded_query,
                reranker,
                snapshot,
                self.resources.states,
                profile,
                names_document=bool(inputs.named),
                weigh_tokens=weigh_words if weighs_words and idf else None,
            )
        query.budget.rerank_requests += reranked.requests
        return reranked
