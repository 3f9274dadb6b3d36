"""State of a query that is being processed, and its retrieval result."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from retrieval.answer_cache import AnswerKey, format_readers_key
from retrieval.context_packing import ContextPassage, pack_contexts
from retrieval.parent_expansion import limit_per_document
from retrieval.query_plan import QueryPlan
from retrieval.ranking import Ranking
from retrieval.relevance import RelevanceDecision
from retrieval.results import build_results
from retrieval.timing import Stopwatch
from retrieval.trimming import trim_parents
from schemas.ports.search import ChunkView, ParentView, SnapshotVersion
from schemas.principals import Principal
from schemas.profiles import Profile
from schemas.questions import OnProgress, QueryRequest, Route, SearchRequest, SearchResult


@dataclass(frozen=True, slots=True)
class QueryContext:
    """A query that is being processed."""

    caller: Principal
    run_id: UUID
    request: SearchRequest
    profile: Profile
    plan: QueryPlan
    stopwatch: Stopwatch
    on_progress: OnProgress
    generation: str | None = None  # None: the live generation at the time of each snapshot
    use_cache: bool = False

    @property
    def cache_key(self) -> AnswerKey | None:
        """Cache key, or None for streamed answers, which are not cached."""
        if not self.use_cache or self.is_streamed or self.generation is None:
            return None
        return (
            self.caller.tenant,
            format_readers_key(self.caller.readers),
            self.generation,
            type(self.request).__name__,
            self.request.model_dump_json(),
        )

    @property
    def is_streamed(self) -> bool:
        return isinstance(self.request, QueryRequest) and self.request.stream


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """Ranked parents over one snapshot, before answering. `parent_views` are the parents that were
    read.
    """

    generation: str
    route: Route
    ranking: Ranking
    relevance: RelevanceDecision
    contexts: tuple[ContextPassage, ...] = ()
    results: tuple[SearchResult, ...] = ()
    parent_views: Mapping[UUID, ParentView] = field(default_factory=dict)
    missing_collections: tuple[str, ...] = ()  # named by the filters, but without documents
    # None when a channel, a model or the reranker failed: an incomplete result must not be cached.
    snapshot_version: SnapshotVersion | None = None


class PassageReader(Protocol):
    """The part of IndexSnapshot that is used after ranking; a rerun implements it from its record."""

    async def fetch_parents(self, parent_ids: Sequence[UUID]) -> Mapping[UUID, ParentView]: ...

    async def fetch_children(self, parent_ids: Sequence[UUID]) -> Sequence[ChunkView]: ...


async def attach_results(
    query_context: QueryContext, result: RetrievalResult, snapshot: PassageReader
) -> RetrievalResult:
    best = limit_per_document(result.ranking.parents, query_context.profile.fusion.per_document)[
        : query_context.request.k
    ]
    views = await snapshot.fetch_parents([parent.parent_id for parent in best])
    return replace(
        result,
        results=tuple(
            build_results(
                best, views, query_context.plan.keywords, explain=query_context.request.explain
            )
        ),
        parent_views=views,
    )


async def attach_contexts(
    query_context: QueryContext, result: RetrievalResult, snapshot: PassageReader
) -> RetrievalResult:
    """Trim and pack the best parents, with the children that may be quoted."""
    best = limit_per_document(result.ranking.parents, query_context.profile.fusion.per_document)
    trimmed = trim_parents(
        best[: min(query_context.request.k, query_context.profile.rerank.keep)],
        query_context.profile.answer.trim,
        result.relevance.background,
    )
    loaded_children = result.ranking.reranked.children if result.ranking.reranked else {}
    unloaded_ids = [
        parent.parent_id for parent in trimmed if parent.parent_id not in loaded_children
    ]
    views, children = await asyncio.gather(
        snapshot.fetch_parents([parent.parent_id for parent in trimmed]),
        _fetch_children(snapshot, unloaded_ids),
    )
    readable_parents = [parent for parent in trimmed if parent.parent_id in views]
    contexts = pack_contexts(
        readable_parents,
        views,
        {**loaded_children, **children},
        query_context.profile.answer.context_tokens,
    )
    context_results = build_results(
        [context.parent for context in contexts],
        views,
        query_context.plan.keywords,
        explain=query_context.request.explain,
    )
    return replace(
        result, contexts=tuple(contexts), results=tuple(context_results), parent_views=views
    )


async def _fetch_children(
    snapshot: PassageReader, parents: Sequence[UUID]
) -> dict[UUID, list[ChunkView]]:
    families: dict[UUID, list[ChunkView]] = {}
    for child in sorted(
        await snapshot.fetch_children(parents) if parents else [], key=lambda child: child.ordinal
    ):
        families.setdefault(child.parent_id, []).append(child)
    return families


def get_numbers(result: RetrievalResult) -> dict[str, Any]:
    return {"refusal": asdict(result.relevance)}
