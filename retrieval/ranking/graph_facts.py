"""Relations and claims of the graph as lines of the context, each with the sentence that states it.

The graph is only where to look: a line whose names do not stand in a visible passage is left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any
from uuid import UUID

from engines.chunk.atoms import estimate_tokens
from engines.name_folding import fold_name
from retrieval.prompting import normalize_whitespace
from retrieval.question.words import extract_word_keys
from retrieval.ranking.context_packing import ContextPassage
from retrieval.ranking.fusion import FusedCandidate
from retrieval.ranking.parent_expansion import RankedParent
from retrieval.ranking.query_context import QueryContext
from retrieval.ranking.quote_candidates import QuoteCandidate, find_sentence
from retrieval.redaction import Redactor
from schemas.channels import GraphProfile
from schemas.errors import AnabranchError
from schemas.graph_facts import GraphEvidence
from schemas.ports.search import ChunkView, EntitySeed, IndexSnapshot, ParentView

# Documents and extraction models provide these texts, of any length.
MAX_PREDICATE, MAX_NAME, MAX_QUOTE = 80, 200, 600
# Rows to choose from, per line of the context.
CHOICE = 4


@dataclass(frozen=True, slots=True)
class GraphLine:
    """A relation or claim whose names stand in `quote`, a verified place of a visible passage."""

    evidence: GraphEvidence
    quote: QuoteCandidate

    @property
    def n(self) -> int:
        return self.quote.context.n

    @property
    def subject(self) -> str:
        return self._read(self.evidence.subject_span)

    @property
    def object(self) -> str:
        return self._read(self.evidence.object_span)

    @property
    def predicate(self) -> str:
        return normalize_whitespace(self.evidence.predicate, MAX_PREDICATE)

    @property
    def tokens(self) -> int:
        return estimate_tokens(json.dumps(self.to_prompt(Redactor()), ensure_ascii=False))

    def to_prompt(self, redactor: Redactor) -> dict[str, Any]:
        """Return the line for the chat model, with masked identifiers."""
        text = redactor.mask(self.quote.readable_text)
        names = {"subject": self.subject, "predicate": self.predicate, "object": self.object}
        if self.evidence.kind == "claim":
            names = {"subject": self.subject, "property": self.predicate, "value": self.object}
        return {
            "n": self.n,
            **{name: redactor.mask(value) for name, value in names.items()},
            "text": normalize_whitespace(text),
        }

    def _read(self, span: tuple[int, int]) -> str:
        offset = self.quote.chunk.char_start
        return normalize_whitespace(
            self.quote.chunk.text[span[0] - offset : span[1] - offset], MAX_NAME
        )


@dataclass(frozen=True, slots=True)
class PathStep:
    """A relation on a path; `inverse` when the path leads from its object to its subject."""

    line: GraphLine
    inverse: bool


async def retrieve_graph_evidence(
    query: QueryContext,
    snapshot: IndexSnapshot,
    seeds: Sequence[EntitySeed],
    found: Sequence[UUID],
) -> tuple[tuple[GraphEvidence, ...], tuple[str, ...]]:
    """Return the relations and claims to read, the best first, and notes for the trace.

    `found` are the chunks found, best first, whose claims are read. Without `seeds`, the entities
    that the graph channel linked, nothing is read. A failure costs only these lines, and is noted.
    """
    graph = GraphProfile.model_validate(query.profile.get_channel("graph"))
    if not seeds or not graph.facts:
        return (), ()
    question = fold_name(query.plan.question)
    try:
        async with asyncio.timeout(graph.timeout_s):
            rows = await snapshot.find_graph_evidence(
                query.caller.tenant,
                sorted(seeds, key=lambda seed: (question.find(seed.key), seed.key, seed.type)),
                hops=1 if graph.strategy == "entity_search" else min(2, graph.hops),
                fan_out=graph.fan_out,
                filters=query.request.filters,
                found=found[: graph.claim_chunks],
                limit=CHOICE * graph.facts,
            )
    except AnabranchError as error:
        return (), (f"graph facts not read: {error.detail}",)
    except TimeoutError:
        return (), (f"graph facts not read: no answer in {graph.timeout_s:g} s",)
    readable = [row for row in rows if row.document_id not in query.excluded_documents]
    return tuple(choose_evidence(readable, query.plan.question, graph.facts)), ()


def choose_evidence(
    rows: Sequence[GraphEvidence], question: str, limit: int
) -> list[GraphEvidence]:
    """Return at most `limit` rows: a path between named entities, then relations, then claims, the
    ones that share words with the question first. Claims take half if there are as many.
    """
    question_keys = extract_word_keys(question)
    path = [row for row, _ in find_path(rows)]
    ranked = sorted(
        (row for row in rows if row not in path),
        key=lambda row: -len(question_keys & extract_word_keys(row.predicate.replace("_", " "))),
    )
    relations = [*path, *(row for row in ranked if row.kind == "relation")]
    claims = [row for row in ranked if row.kind == "claim"]
    n_claims = min(len(claims), max(limit // 2, limit - len(relations)))
    return [*relations[: limit - n_claims], *claims[:n_claims]]


def find_path(rows: Sequence[GraphEvidence]) -> list[tuple[GraphEvidence, bool]]:
    """Return the shortest path of one or two relations between two names of the question, the
    heaviest of equal ones, from the earlier name on; empty if there is none.

    Each relation comes with whether the path leads from its object to its subject.
    """
    relations = [row for row in rows if row.kind == "relation"]
    edges = [
        *(_Edge(row, False, row.subject_seed, row.object_seed) for row in relations),
        *(_Edge(row, True, row.object_seed, row.subject_seed) for row in relations),
    ]
    starts = [edge for edge in edges if edge.seed is not None]
    paths = [[edge] for edge in starts if _leads(edge, edge)] or [
        [first, second]
        for first, second in product(starts, edges)
        if first.next_seed is None and first.next_id == second.id and _leads(first, second)
    ]
    # Of equal weight, the first: the index orders the relations.
    best = max(paths, key=lambda path: sum(edge.row.weight for edge in path), default=[])
    return [(edge.row, edge.inverse) for edge in best]


@dataclass(frozen=True, slots=True)
class _Edge:
    """A relation from the entity `id` to `next_id`, with their numbers as names of the question."""

    row: GraphEvidence
    inverse: bool
    seed: int | None
    next_seed: int | None

    @property
    def id(self) -> UUID | None:
        return self.row.object_id if self.inverse else self.row.subject_id

    @property
    def next_id(self) -> UUID | None:
        return self.row.subject_id if self.inverse else self.row.object_id


def _leads(first: _Edge, last: _Edge) -> bool:
    """True if the edges lead from a name of the question to a later one."""
    return first.seed is not None and last.next_seed is not None and first.seed < last.next_seed


def locate_lines(
    evidence: Sequence[GraphEvidence],
    parents: Mapping[UUID, ParentView],
    chunks: Mapping[UUID, ChunkView],
) -> list[GraphLine]:
    """Return the lines whose names stand in the sentence of a passage that was read."""
    lines = []
    for row in evidence:
        chunk, view = chunks.get(row.chunk_id), parents.get(row.parent_id)
        if chunk is None or view is None:
            continue
        # The sentence of a relation may begin in the previous chunk.
        place = (
            max(row.char_start - chunk.char_start, 0),
            min(row.char_end - chunk.char_start, len(chunk.text)),
        )
        start, end = find_sentence(chunk.text, *place) if row.kind == "claim" else place
        text = chunk.text[start:end]
        start, end = start + len(text) - len(text.lstrip()), start + len(text.rstrip())
        best = FusedCandidate(chunk, 0.0, {}, {})
        parent = RankedParent(row.parent_id, row.document_id, 0.0, best, 1)
        quote = QuoteCandidate(ContextPassage(0, parent, view, (chunk,)), chunk, start, end)
        holds_names = all(
            start <= first - chunk.char_start < last - chunk.char_start <= end
            for first, last in (row.subject_span, row.object_span)
        )
        if holds_names and end - start <= MAX_QUOTE and quote.is_verbatim:
            lines.append(GraphLine(row, quote))
    return lines


def fit_lines(lines: Sequence[GraphLine], n_passages: int, budget: int) -> list[GraphLine]:
    """Return the lines that fit the tokens left, in order, numbered after the passages."""
    fitting: list[GraphLine] = []
    for line in lines:
        if line.tokens <= budget:
            budget -= line.tokens
            context = replace(line.quote.context, n=n_passages + len(fitting) + 1)
            fitting.append(replace(line, quote=replace(line.quote, context=context)))
    return fitting


def trace_path(lines: Sequence[GraphLine]) -> list[PathStep]:
    """Return the path between two names of the question over the lines."""
    by_evidence = {id(line.evidence): line for line in lines}
    return [
        PathStep(by_evidence[id(row)], inverse)
        for row, inverse in find_path([line.evidence for line in lines])
    ]
