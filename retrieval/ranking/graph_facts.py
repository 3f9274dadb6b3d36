"""Relations and claims of the graph, and approved facts, as lines of the context.

The graph is only where to look: a line has the sentence that states it, and is left out if its
names do not stand in a visible passage. A fact suits if it holds most of the question's topical
words, and all of its codes, numbers and names: the contact for plant 4 does not answer a question
about plant 3.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from typing import Any
from uuid import UUID

from engines.language import estimate_tokens, fold_name
from retrieval.prompting import normalize_whitespace
from retrieval.question.question_terms import find_question_terms, index_text_terms
from retrieval.question.words import extract_word_keys, split_words
from retrieval.ranking.fusion import FusedCandidate
from retrieval.ranking.passages import ContextPassage, RankedParent
from retrieval.ranking.query_context import QueryContext
from retrieval.ranking.quote_candidates import QuoteCandidate, find_sentence
from retrieval.redaction import Redactor
from schemas.channels import GraphProfile
from schemas.citations import GraphEvidence
from schemas.errors import AnabranchError
from schemas.facts import Fact, FactCitation, FactsProfile, decay_certainty
from schemas.ports.search import ChunkView, EntitySeed, IndexSnapshot, ParentView
from schemas.questions import Filters, QueryRequest

# Facts that are scored; the database returns those that hold most words of the question.
MAX_SCORED = 200
# Facts whose certainty has decayed below this are not used.
MIN_CERTAINTY = 0.3
# Least share of the question's topical words that a fact holds.
MIN_COVERAGE = 0.6
# Best chunks whose claims are read.
CLAIM_CHUNKS = 50
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class _ScoredFact:
    fact: Fact
    certainty: float
    score: float


async def retrieve_facts(
    query: QueryContext, snapshot: IndexSnapshot, now: datetime
) -> tuple[FactCitation, ...]:
    """Return the facts to answer from, best first.

    A question that is restricted to some documents has none: a fact belongs to no document.
    """
    profile, request = query.profile.facts, query.request
    question = query.question
    keys = extract_word_keys(question)
    if (
        not profile.enabled
        or not isinstance(request, QueryRequest)
        or request.filters != Filters()
        or not keys
    ):
        return ()
    facts = await snapshot.search_facts(query.caller.tenant, sorted(keys), now, MAX_SCORED)
    return tuple(
        FactCitation(
            n=n,
            fact_id=scored.fact.fact_id,
            statement=scored.fact.statement,
            source=scored.fact.source,
            stated_by=scored.fact.stated_by,
            stated_at=scored.fact.stated_at,
            approved_by=scored.fact.decided_by,
            certainty=scored.certainty,
        )
        for n, scored in enumerate(
            _rank_facts(facts, question, query.plan.language, profile, now), start=1
        )
    )


def _rank_facts(
    facts: Sequence[Fact], question: str, language: str | None, profile: FactsProfile, now: datetime
) -> list[_ScoredFact]:
    keys = extract_word_keys(question)
    terms = find_question_terms(question, language)
    # A number of one digit is no code, yet it tells plant 3 from plant 4.
    codes = {*terms.codes, *(word for word in split_words(question) if word.isdigit())}
    ranked = []
    for fact in facts:
        held = index_text_terms([fact.statement])
        if not all(map(held.holds_code, codes)) or not all(map(held.holds_name, terms.names)):
            continue
        coverage = len(keys & extract_word_keys(fact.statement)) / len(keys)
        age_days = (now - fact.stated_at).total_seconds() / _DAY_S
        half_life_days = fact.half_life_days or profile.half_life_days
        certainty = decay_certainty(fact.certainty, age_days, half_life_days)
        if coverage >= MIN_COVERAGE and certainty >= MIN_CERTAINTY:
            ranked.append(_ScoredFact(fact, certainty, coverage * certainty))
    # The database breaks ties: more words, then the newer statement.
    return sorted(ranked, key=lambda scored: -scored.score)[: profile.k]


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
    query: QueryContext, snapshot: IndexSnapshot, seeds: Sequence[EntitySeed], found: Sequence[UUID]
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
                found=found[:CLAIM_CHUNKS],
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
