"""A question under way, and what was found for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from retrieval.denoise import trim
from retrieval.expand import at_most_per_document
from retrieval.pack import Context, pack
from retrieval.plan import Plan
from retrieval.ranking import Ranking
from retrieval.refuse import Suitability
from retrieval.remembered import Key, names_key
from retrieval.results import results
from retrieval.timing import Stopwatch
from schemas.ports.search import ChunkView, ParentView, Standing
from schemas.principals import Principal
from schemas.profiles import Profile
from schemas.questions import QueryRequest, Result, Route, SearchRequest, Tell


@dataclass(frozen=True, slots=True)
class Asked:
    """One question under way."""

    caller: Principal
    run_id: UUID
    request: SearchRequest
    profile: Profile
    plan: Plan
    watch: Stopwatch
    tell: Tell
    generation: str | None = None
    """Which is looked at; None: the one that is live at each look."""
    from_memory: bool = False
    """Whether what was found before may be taken."""

    @property
    def key(self) -> Key | None:
        """Under which its answer is remembered. One that is streamed is made as it is told."""
        if not self.from_memory or self.streams or self.generation is None:
            return None
        return self.caller.tenant, names_key(self.caller.readers), self.generation, type(self.request).__name__, self.request.model_dump_json()

    @property
    def streams(self) -> bool:
        return isinstance(self.request, QueryRequest) and self.request.stream


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found over one snapshot, before anything is answered. `views` are the parents that were read."""

    generation: str
    route: Route
    ranking: Ranking
    suitability: Suitability
    contexts: tuple[Context, ...] = ()
    results: tuple[Result, ...] = ()
    views: Mapping[UUID, ParentView] = field(default_factory=dict)
    missing_collections: tuple[str, ...] = ()
    """That the filters name and no document has."""
    standing: Standing | None = None
    """Of the index; None where a channel, a model, the reranker or what it reads was lost."""


class Readable(Protocol):
    """Of a snapshot, what is needed once everything is ranked."""

    async def parents(self, ids: Sequence[UUID]) -> Mapping[UUID, ParentView]: ...

    async def children(self, parents: Sequence[UUID]) -> Sequence[ChunkView]: ...


async def with_results(asked: Asked, looked: Looked, snapshot: Readable) -> Looked:
    best = at_most_per_document(looked.ranking.parents, asked.profile.fusion.per_document)[: asked.request.k]
    views = await snapshot.parents([parent.parent_id for parent in best])
    return replace(looked, results=tuple(results(best, views, asked.plan.keywords, explain=asked.request.explain)), views=views)


async def with_contexts(asked: Asked, looked: Looked, snapshot: Readable) -> Looked:
    """The best parents, trimmed and packed, with the children that may be quoted."""
    best = at_most_per_document(looked.ranking.parents, asked.profile.fusion.per_document)
    kept = trim(best[: min(asked.request.k, asked.profile.rerank.keep)], asked.profile.answer.trim, looked.suitability.background)
    known = looked.ranking.reranked.children if looked.ranking.reranked else {}
    unread = [parent.parent_id for parent in kept if parent.parent_id not in known]
    views, children = await asyncio.gather(snapshot.parents([parent.parent_id for parent in kept]), _children(snapshot, unread))
    there = [parent for parent in kept if parent.parent_id in views]
    contexts = pack(there, views, {**known, **children}, asked.profile.answer.context_tokens)
    shown = results([context.parent for context in contexts], views, asked.plan.keywords, explain=asked.request.explain)
    return replace(looked, contexts=tuple(contexts), results=tuple(shown), views=views)


async def _children(snapshot: Readable, parents: Sequence[UUID]) -> dict[UUID, list[ChunkView]]:
    families: dict[UUID, list[ChunkView]] = {}
    for child in sorted(await snapshot.children(parents) if parents else [], key=lambda child: child.ordinal):
        families.setdefault(child.parent_id, []).append(child)
    return families


def numbers_of(looked: Looked) -> dict[str, Any]:
    return {"refusal": asdict(looked.suitability)}
