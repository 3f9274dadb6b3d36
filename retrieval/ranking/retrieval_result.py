"""The result of retrieval: the ranking with everything that led to it, and the passages to read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

from retrieval.question.query_plan import QueryPlan
from retrieval.question.words import strip_accents
from retrieval.ranking.candidate_retrieval import ChannelCandidates
from retrieval.ranking.fusion import Fusion
from retrieval.ranking.graph_facts import GraphLine, PathStep, fit_lines, locate_lines, trace_path
from retrieval.ranking.passages import (
    ContextPassage,
    RankedParent,
    attach_duplicates,
    group_by_parent,
    limit_per_document,
    list_duplicates,
    pack_contexts,
    trim_parents,
)
from retrieval.ranking.planning import ModelUse
from retrieval.ranking.query_context import QueryContext
from retrieval.ranking.relevance import RelevanceDecision
from retrieval.ranking.reranking import RerankResult
from retrieval.redaction import Passage, Redactor
from schemas.citations import GraphEvidence
from schemas.facts import FactCitation
from schemas.ports.search import ChunkView, IndexSnapshot, ParentView, SnapshotVersion
from schemas.questions import Route, SearchResult
from schemas.values import Span


@dataclass(frozen=True, slots=True)
class Ranking:
    """Parents, best first, near-duplicates folded. `reranked` is None without a reranker."""

    parents: tuple[RankedParent, ...]
    candidates: ChannelCandidates
    fusion: Fusion
    reranked: RerankResult | None

    @property
    def idf(self) -> Mapping[str, Mapping[str, float]]:
        return self.candidates.lexical.idf if self.candidates.lexical else {}

    @property
    def is_complete(self) -> bool:
        """True when every channel and the reranker succeeded, token states included."""
        return not self.candidates.failed and (
            self.reranked is None
            or (self.reranked.is_reranked and not self.reranked.unread_states_count)
        )

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each score in the sum, by channel or name of the score."""
        rerank_numbers = self.reranked.numbers if self.reranked else {}
        numbers = {**self.fusion.numbers, "rerank": rerank_numbers}
        return {
            name: values["weight"]
            for name, values in numbers.items()
            if isinstance(values, Mapping) and "weight" in values
        }

    @property
    def notes(self) -> list[str]:
        return list(self.reranked.notes) if self.reranked else []

    @property
    def numbers(self) -> dict[str, Any]:
        """Every number that entered a score, except those of single candidates."""
        rerank_numbers = dict(self.reranked.numbers) if self.reranked else {}
        return {
            "fusion": dict(self.fusion.numbers),
            "idf": {name: dict(weights) for name, weights in self.idf.items()},
            "rerank": rerank_numbers,
        }


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
    graph_evidence: tuple[GraphEvidence, ...] = ()  # relations and claims to read, best first
    graph_lines: tuple[GraphLine, ...] = ()  # those that were read, numbered after the contexts
    facts: tuple[FactCitation, ...] = ()  # numbered, best first
    assumptions: tuple[str, ...] = ()  # about the documents that the question names
    missing_collections: tuple[str, ...] = ()  # named by the filters, but without documents
    model_uses: tuple[ModelUse, ...] = ()  # by planning and routing
    notes: tuple[str, ...] = ()  # failures that cost no channel
    # None when a channel, a model, the reranker or a step with a note failed: an incomplete result
    # must not be cached.
    # Nor are facts, which expire and whose certainty decays without a commit.
    snapshot_version: SnapshotVersion | None = None

    @property
    def read_passages(self) -> tuple[ContextPassage, ...]:
        """The passages of the lines of the graph, then the contexts, which hold more of a chunk."""
        return (*(line.quote.context for line in self.graph_lines), *self.contexts)


def find_relation_path(plan: QueryPlan, result: RetrievalResult) -> list[PathStep]:
    """Return the path that answers a question about a relation, if the graph has one."""
    return trace_path(result.graph_lines) if plan.intent == "relation" else []


class PassageReader(Protocol):
    """The part of IndexSnapshot that is used after ranking.

    A rerun implements it from its record.
    """

    async def fetch_parents(self, parent_ids: Sequence[UUID]) -> Mapping[UUID, ParentView]: ...

    async def fetch_children(self, parent_ids: Sequence[UUID]) -> Sequence[ChunkView]: ...


async def date_result(
    query_context: QueryContext, result: RetrievalResult, snapshot: IndexSnapshot
) -> RetrievalResult:
    """Add the version of the index, for the answer cache, and the collections that do not exist."""
    tenant, names = query_context.caller.tenant, query_context.request.filters.collections
    missing = await snapshot.find_missing_collections(tenant, names) if names else ()
    version = SnapshotVersion(tenant, snapshot.generation.name, snapshot.state)
    return replace(
        result,
        missing_collections=tuple(missing),
        # A plan that was made during a model's failure must not be served after it.
        snapshot_version=version
        if result.ranking.is_complete
        and not result.notes
        and not any(use.failure for use in result.model_uses)
        else None,
    )


def list_best_parents(query_context: QueryContext, ranking: Ranking) -> list[RankedParent]:
    """Return the first `k` parents, at most `per_document` of each document."""
    limit = query_context.profile.fusion.per_document
    return limit_per_document(ranking.parents, limit)[: query_context.request.k]


async def attach_results(
    query_context: QueryContext, result: RetrievalResult, snapshot: PassageReader
) -> RetrievalResult:
    best = list_best_parents(query_context, result.ranking)
    views = await snapshot.fetch_parents([parent.parent_id for parent in best])
    learn_views(query_context.redactor, views, [parent.best.chunk for parent in best])
    return replace(
        result,
        results=tuple(build_results(best, views, query_context, result.ranking)),
        parent_views=views,
    )


async def attach_contexts(
    query_context: QueryContext, result: RetrievalResult, snapshot: PassageReader
) -> RetrievalResult:
    """Trim and pack the best parents, with the children that may be quoted."""
    profile = query_context.profile.answer
    best = list_best_parents(query_context, result.ranking)[: query_context.profile.rerank.keep]
    # Before packing, so that weak passages do not use the token budget.
    trimmed = trim_parents(best, profile.trim, result.relevance.background)
    duplicates = [duplicate for parent in trimmed for duplicate in list_duplicates(parent)]
    read_ids = [parent.parent_id for parent in trimmed]
    evidence_ids = [row.parent_id for row in result.graph_evidence]
    duplicate_ids = [parent.parent_id for parent in duplicates]
    views, children = await asyncio.gather(
        snapshot.fetch_parents(list(dict.fromkeys([*read_ids, *duplicate_ids, *evidence_ids]))),
        snapshot.fetch_children(list(dict.fromkeys([*read_ids, *evidence_ids]))),
    )
    best_chunks = [parent.best.chunk for parent in (*trimmed, *duplicates)]
    learn_views(query_context.redactor, views, [*best_chunks, *children])
    readable_parents = [parent for parent in trimmed if parent.parent_id in views]
    chunks = {child.chunk_id: child for child in children}
    lines = locate_lines(result.graph_evidence, views, chunks) if readable_parents else []
    # The path that answers the question has its place; other lines displace no passage.
    path = trace_path(lines) if query_context.plan.intent == "relation" else []
    contexts = pack_contexts(
        readable_parents,
        views,
        group_by_parent(children),
        profile.context_tokens - sum(step.line.tokens for step in path),
    )
    tokens_left = profile.context_tokens - sum(context.tokens for context in contexts)
    lines = fit_lines(lines, len(contexts), tokens_left)
    query_context.redactor.learn(line.quote.context.readable_text for line in lines)
    context_results = build_results(
        [context.parent for context in contexts], views, query_context, result.ranking
    )
    return replace(
        result,
        contexts=tuple(attach_duplicates(context, views) for context in contexts),
        results=tuple(context_results),
        parent_views=views,
        graph_lines=tuple(lines),
    )


def learn_views(
    redactor: Redactor, views: Mapping[UUID, ParentView], chunks: Sequence[ChunkView]
) -> None:
    """Let the redactor know the identifiers that passages or their chunks divide."""

    def list_passages(items: Iterable[ParentView | ChunkView]) -> list[Passage]:
        return [
            Passage(item.document_id, item.char_start, item.text)
            for item in items
            # Positions fit the text only while both have the same length.
            if item.char_end - item.char_start == len(item.text)
        ]

    passages = list_passages(views.values())
    redactor.learn_divided(passages, [*passages, *list_passages(chunks)])


MAX_SNIPPET_CHARACTERS = 400


def build_results(
    parents: Sequence[RankedParent],
    views: Mapping[UUID, ParentView],
    query: QueryContext,
    ranking: Ranking,
) -> list[SearchResult]:
    """Build results, ranked from 1. Parents that are no longer readable are left out."""
    weights = ranking.weights if query.request.explain else None
    results: list[SearchResult] = []
    for parent in (parent for parent in parents if parent.parent_id in views):
        view, chunk = views[parent.parent_id], parent.best.chunk
        spans = parse_spans(chunk)
        pages = list_pages(spans) or list(view.pages)
        results.append(
            SearchResult(
                rank=len(results) + 1,
                score=parent.score,
                document_id=parent.document_id,
                external_id=chunk.external_id,
                revision=chunk.revision,
                title=chunk.title,
                source_uri=chunk.source_uri,
                link=format_link(chunk.document_id, pages, chunk.char_start, chunk.char_end),
                chunk_id=chunk.chunk_id,
                parent_id=parent.parent_id,
                section=view.section,
                pages=pages,
                spans=spans,
                snippet=extract_snippet(query.redactor.mask(chunk.text), query.plan.keywords),
                text=query.redactor.mask(view.text) if query.request.return_text else None,
                channels=dict(parent.best.channel_places),
                duplicates=parent.duplicate_documents(),
                explanation=None if weights is None else explain_score(parent, weights),
            )
        )
    return results


def explain_score(parent: RankedParent, weights: Mapping[str, float]) -> dict[str, Any]:
    """Return every number that entered the score. Fusion addends are those of the best child."""
    return {
        "score": parent.score,
        "rerank_score": parent.rerank_score,
        "children_found": parent.children_count,
        "weights": dict(weights),
        **parent.score_parts,
    }


def parse_spans(chunk: ChunkView) -> list[Span]:
    return [Span.model_validate(dict(span)) for span in chunk.spans]


def clip_spans(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """Clip spans to `[start, end)`, keeping page and box; without any, return the bare character
    range.
    """
    clipped = [
        span.clip(start, end) for span in spans if span.char_start < end and start < span.char_end
    ]
    return clipped or [Span(char_start=start, char_end=end)]


def list_pages(spans: Sequence[Span]) -> list[int]:
    return sorted({span.page for span in spans if span.page is not None})


def format_link(document_id: UUID, pages: Sequence[int], char_start: int, char_end: int) -> str:
    """Link to the file at its page or, without pages, to the Markdown at its span (RFC 5147)."""
    if pages:
        return f"/v1/documents/{document_id}/file#page={pages[0]}"
    return f"/v1/documents/{document_id}/markdown#char={char_start},{char_end}"


def extract_snippet(text: str, keywords: Sequence[str]) -> str:
    """Return up to 400 characters of the text, starting shortly before the first keyword."""
    line = " ".join(text.split())
    if len(line) <= MAX_SNIPPET_CHARACTERS:
        return line
    folded_line = strip_accents(line.lower())
    # Folding may change the length, and then offsets do not fit the line.
    keyword_offsets = (
        [offset for word in keywords if (offset := folded_line.find(strip_accents(word))) >= 0]
        if len(folded_line) == len(line)
        else []
    )
    # Some text before the keyword, but a whole snippet at the end of the passage.
    start = max(0, min(min(keyword_offsets, default=0) - 80, len(line) - MAX_SNIPPET_CHARACTERS))
    start = line.find(" ", start) + 1 if start else 0
    end = line.rfind(" ", start, start + MAX_SNIPPET_CHARACTERS)
    return ("… " if start else "") + line[start:end] + (" …" if end < len(line) - 1 else "")
