"""The ten steps of a query, in order.

plan → route → retrieve → fuse → expand → rerank → check relevance → pack → answer → judge.
Caching, publishing, dry runs and evaluation wrap them from outside, in `retrieval.retriever`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from retrieval.answer_drafts import AnswerDraft
from retrieval.answering import write_draft
from retrieval.candidate_retrieval import retrieve_chunks, score_word_pairs
from retrieval.fusion import FusionInput, fuse_candidates
from retrieval.parent_expansion import expand_to_parents, fold_parents
from retrieval.query_context import QueryContext, RetrievalResources
from retrieval.query_plan import choose_route, escalate_route
from retrieval.relevance import check_relevance
from retrieval.reranking import rerank_parents
from retrieval.response_builder import build_response, build_trace, should_answer
from retrieval.retrieval_result import Ranking, RetrievalResult, attach_contexts, attach_results
from schemas.ports.search import SnapshotVersion
from schemas.questions import QueryResponse, Route

Goal = Literal["ranking", "results", "answer"]


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """`response` is None unless the goal is an answer; `draft` is None also for a refusal."""

    retrieval: RetrievalResult
    draft: AnswerDraft | None = None
    response: QueryResponse | None = None

    def combine_versions(self, earlier: RetrievalResult) -> PipelineResult:
        """Date the result to the earlier of two snapshots, so that a change between them is not
        missed.
        """
        version = earlier.snapshot_version if self.retrieval.snapshot_version else None
        return replace(self, retrieval=replace(self.retrieval, snapshot_version=version))


async def run_pipeline(
    query: QueryContext,
    resources: RetrievalResources,
    goal: Goal,
    *,
    route: Route | None = None,
    depth: int | None = None,
) -> PipelineResult:
    """Run the ten steps, or those that `goal` needs: up to 7 for a ranking, up to 8 for search
    results.

    Reads one snapshot of the index. With a `depth`, every channel is deepened to that many
    documents.
    """
    # 1. Plan: `query.plan` holds the language, keywords and names that `plan_query` found.
    plan, request, profile, stopwatch = query.plan, query.request, query.profile, query.stopwatch

    # 2. Route: choose the channels.
    route = route or choose_route(request, plan)

    async with resources.search.open_snapshot(query.generation, query.caller.readers) as snapshot:
        # 3. Retrieve candidates from all channels at once, and load their chunks.
        candidates, chunks = await retrieve_chunks(query, resources, snapshot, route, depth)

        # 4. Fuse the channels' scores into one.
        with stopwatch.measure_step("fuse"):
            pair_scores = score_word_pairs(
                query, candidates, chunks, snapshot.generation.config.lexical
            )
            inputs = FusionInput(candidates.hits, candidates.complete, pair_scores)
            fusion = fuse_candidates(inputs, chunks, profile.fusion)

            # 5. Expand child chunks to their parents.
            parents = expand_to_parents(fusion.candidates, profile.rerank.expand)

        # 6. Rerank the best parents, and fold near-duplicates.
        reranked, reranker = None, resources.get_reranker(profile)
        if reranker is not None and parents:
            with stopwatch.measure_step("rerank"):
                embedding, states = candidates.embedded_query, resources.states
                reranked = await rerank_parents(
                    parents, plan.question, embedding, reranker, snapshot, states, profile.rerank
                )
        n_distinct = depth or max(request.k, profile.rerank.keep)
        ranked = fold_parents(reranked.parents if reranked else parents, profile, n_distinct)
        ranking = Ranking(tuple(ranked), candidates, fusion, reranked)

        # 7. Check relevance: refuse rather than answer from passages that do not fit.
        scorer = resources.reranker if reranked and reranked.is_reranked else None
        relevance = check_relevance(
            ranked, plan, ranking.idf, scorer, candidates.embedded_query, profile.answer
        )
        retrieval = RetrievalResult(snapshot.generation.name, route, ranking, relevance)
        if goal == "ranking":
            return PipelineResult(retrieval)

        # 8. Read the best parents: trimmed and packed as contexts for an answer, or as search
        # results.
        tenant, collections = query.caller.tenant, request.filters.collections
        version = SnapshotVersion(tenant, snapshot.generation.name, snapshot.state)
        retrieval = replace(
            retrieval,
            missing_collections=tuple(
                await snapshot.find_missing_collections(tenant, collections) if collections else ()
            ),
            snapshot_version=version if ranking.is_complete else None,
        )
        with stopwatch.measure_step("read"):
            attach = attach_contexts if goal == "answer" else attach_results
            retrieval = await attach(query, retrieval, snapshot)

    # Steps 3 to 8 run again, with all channels, when a rule chose too few and nothing relevant was
    # found.
    reason = f"{route.mode} alone: {relevance.reason}"
    if relevance.refused and (wider_route := escalate_route(route, reason)) is not None:
        escalated = await run_pipeline(query, resources, goal, route=wider_route)
        return escalated.combine_versions(retrieval)
    if goal == "results":
        return PipelineResult(retrieval)

    # 9. Answer from the contexts. The snapshot is closed: a chat model may take minutes.
    draft: AnswerDraft | None = None
    if should_answer(query, retrieval):
        with stopwatch.measure_step("answer"):
            draft = await write_draft(query, retrieval, resources)

    # 10. Judge the draft, and build the response: an answer, or a refusal.
    response = build_response(
        query, retrieval, draft, lambda: build_trace(query, retrieval, draft, resources)
    )
    return PipelineResult(retrieval, draft, response)
