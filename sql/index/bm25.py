"""Choose which chunks to score for a query, so that few are scored and the best are among them.

The BM25 score of a chunk is the sum of idf × weight over the query's terms, and no weight exceeds
`LexicalConfig.max_weight`. A chunk that contains only frequent terms therefore has an upper bound
(MaxScore: Turtle and Flood, Query Evaluation: Strategies and Optimizations, 1995). Every chunk with
a rare term is a candidate; chunks with frequent terms are candidates only if they contain several
of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from itertools import combinations
from math import log, prod

from schemas.generations import LexicalConfig

ROUNDING_ERROR = 0.0005
"""Stored weights are rounded to thousandths."""
MAX_CONJUNCTION_TERMS = 4
"""Most terms in one conjunction."""
MAX_FREQUENT_TERMS = 10
"""Number of frequent terms per text search configuration, rarest first, that form conjunctions."""
MAX_CONJUNCTIONS = 64
"""Most conjunctions in one query."""
MAX_SEARCH_STEPS = 1500
"""Term sets to examine before the search for a bound stops."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A lexeme of the query under one text search configuration. Equal lexemes form one term.

    `df` is how many of the `chunks` with that configuration contain the lexeme.
    """

    cfg: str
    lexeme: str
    df: int
    chunks: int
    idf: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "idf", log(1 + (self.chunks - self.df + 0.5) / (self.df + 0.5)))

    @property
    def id(self) -> int:
        """The term's index in sparse vectors; must match `lexical_term_id` in SQL."""
        return (
            int.from_bytes(md5(self.lexeme.encode(), usedforsecurity=False).digest()[:4]) >> 3
        ) + 1

    @property
    def document_share(self) -> float:
        return min(1.0, self.df / self.chunks)


Conjunction = tuple[Term, ...]


def estimate_rows(terms: Conjunction) -> float:
    """Estimate how many chunks contain all terms, assuming that terms are independent."""
    return terms[0].chunks * prod(term.document_share for term in terms)


def rank_by_idf_per_row(terms: Conjunction) -> float:
    return -sum(term.idf for term in terms) / max(estimate_rows(terms), 1e-9)


@dataclass(slots=True)
class CandidateSet:
    """The chunks to score: those that contain all terms of at least one conjunction.

    A single term is a conjunction of one.
    """

    conjunctions: list[Conjunction] = field(default_factory=list)
    _miss_probability: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def estimated_rows(self) -> float:
        """Expected number of distinct chunks, assuming that conjunctions are independent."""
        return sum(
            chunks * (1 - probability)
            for (_, chunks), probability in self._miss_probability.items()
        )

    def try_add(self, conjunction: Conjunction, budget: float) -> bool:
        """Add a conjunction, unless the expected number of chunks would exceed `budget`."""
        corpus_key = (conjunction[0].cfg, conjunction[0].chunks)
        previous = self._miss_probability.get(corpus_key, 1.0)
        # Chunks that match several conjunctions must not be counted twice.
        self._miss_probability[corpus_key] = previous * (
            1 - estimate_rows(conjunction) / conjunction[0].chunks
        )
        if self.estimated_rows > budget:
            self._miss_probability[corpus_key] = previous
            return False
        self.conjunctions.append(conjunction)
        return True

    def covers(self, terms: Iterable[Term]) -> bool:
        """Return whether chunks that contain all these terms are among the candidates."""
        term_set = set(terms)
        return any(term_set.issuperset(conjunction) for conjunction in self.conjunctions)

    def drop_implied(self) -> None:
        """Remove conjunctions that contain another one, which already matches their chunks."""
        minimal: list[Conjunction] = []
        for conjunction in sorted(self.conjunctions, key=len):
            if not any(set(conjunction).issuperset(other) for other in minimal):
                minimal.append(conjunction)
        self.conjunctions = minimal

    def to_tsqueries(self) -> Mapping[str, str]:
        """Return one tsquery per text search configuration."""
        by_cfg: dict[str, list[Conjunction]] = {}
        for conjunction in self.conjunctions:
            by_cfg.setdefault(conjunction[0].cfg, []).append(conjunction)
        return {
            cfg: " | ".join(
                " & ".join(_quote_lexeme(term.lexeme) for term in conjunction)
                for conjunction in conjunctions
            )
            for cfg, conjunctions in by_cfg.items()
        }


def choose_candidates(terms: Sequence[Term], budget: float) -> CandidateSet:
    """Choose the candidates for a query within a budget of expected chunks.

    Takes the rarest terms until the budget is spent, at least one; then conjunctions of two to four
    of the remaining terms, highest idf per expected chunk first.
    """
    rarest = sorted(
        (term for term in terms if term.df > 0), key=lambda term: (term.df, term.cfg, term.lexeme)
    )
    candidates = CandidateSet()
    n_single_terms = 0
    # The first term has no budget: without any candidate nothing would be found.
    while n_single_terms < len(rarest) and candidates.try_add(
        (rarest[n_single_terms],), budget if n_single_terms else float("inf")
    ):
        n_single_terms += 1
    frequent_conjunctions = (
        conjunction
        for group in _group_by_config(rarest[n_single_terms:])
        for size in range(2, MAX_CONJUNCTION_TERMS + 1)
        for conjunction in combinations(group[:MAX_FREQUENT_TERMS], size)
    )
    for conjunction in sorted(frequent_conjunctions, key=rank_by_idf_per_row):
        if len(candidates.conjunctions) >= n_single_terms + MAX_CONJUNCTIONS:
            break
        if not candidates.covers(conjunction) and not candidates.try_add(conjunction, budget):
            break
    candidates.drop_implied()
    return candidates


def find_unseen_conjunctions(
    terms: Sequence[Term], candidates: CandidateSet, min_score: float, config: LexicalConfig
) -> list[Conjunction] | None:
    """Return the conjunctions that an unseen chunk with a score of at least `min_score` may match.

    An empty list proves that the best chunks are known. Returns None if there are too many
    conjunctions.
    """
    conjunctions: list[Conjunction] = []
    # A bound must not be below any stored weight.
    max_weight = config.max_weight + ROUNDING_ERROR
    steps = 0

    def extend(
        conjunction: Conjunction, bound: float, remaining: Sequence[Term], reachable: float
    ) -> bool:
        nonlocal steps
        steps += 1
        if conjunction and candidates.covers(conjunction):
            return True
        if conjunction and (bound >= min_score or len(conjunction) == MAX_CONJUNCTION_TERMS):
            conjunctions.append(conjunction)
            return len(conjunctions) <= MAX_CONJUNCTIONS
        for index, term in enumerate(remaining):
            if bound + reachable < min_score:
                return True
            # Later sets leave this term out, so they cannot count on its score.
            reachable -= max_weight * term.idf
            # The number of sets is exponential in the terms.
            if steps > MAX_SEARCH_STEPS or not extend(
                (*conjunction, term),
                bound + max_weight * term.idf,
                remaining[index + 1 :],
                reachable,
            ):
                return False
        return True

    for group in _group_by_config(
        term for term in terms if term.df > 0 and not candidates.covers((term,))
    ):
        ordered = sorted(group, key=lambda term: (-term.idf, term.lexeme))
        if not extend((), 0.0, ordered, sum(max_weight * term.idf for term in ordered)):
            return None
    return conjunctions


def _group_by_config(terms: Iterable[Term]) -> list[list[Term]]:
    groups: dict[str, list[Term]] = {}
    for term in terms:
        groups.setdefault(term.cfg, []).append(term)
    return list(groups.values())


def _quote_lexeme(lexeme: str) -> str:
    escaped = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
