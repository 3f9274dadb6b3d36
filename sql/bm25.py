"""Which chunks to score for a question, so that few are scored and the best are among them.

A chunk's score is the sum over the question's terms of idf × weight, and no weight exceeds `HEAVIEST`: so a chunk that holds only frequent terms has a bound
(MaxScore: Turtle and Flood, Query Evaluation: Strategies and Optimizations, 1995). Rare terms bring their chunks in alone, frequent ones only together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from itertools import combinations
from math import log, prod

HEAVIEST = 2.2 / 1.009 + 0.0005
"""Most a term can weigh in a chunk, with k1 1.2, b 0.75 and an average length of 100: a chunk of nothing but that term; and the rounding of stored weights."""
TOGETHER = 4
"""Terms of a conjunction at most."""
JOINED = 10
"""Frequent terms of one configuration that conjunctions are made of, the rarest."""
CONJUNCTIONS = 64
"""In one query at most."""
STEPS = 1500
"""Sets of terms looked at before a bound is given up."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A lexeme of the question under one text search configuration: how many of the `chunks` of that configuration hold it. Said twice, it is one term."""

    cfg: str
    lexeme: str
    df: int
    chunks: int
    idf: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "idf", log(1 + (self.chunks - self.df + 0.5) / (self.df + 0.5)))

    @property
    def id(self) -> int:
        """As `lexical_term_id` in SQL."""
        return (int.from_bytes(md5(self.lexeme.encode(), usedforsecurity=False).digest()[:4]) >> 3) + 1

    @property
    def share(self) -> float:
        return min(1.0, self.df / self.chunks)


Conjunction = tuple[Term, ...]


def expected_rows(terms: Conjunction) -> float:
    """If words were independent of each other."""
    return terms[0].chunks * prod(term.share for term in terms)


def most_idf_per_row(terms: Conjunction) -> float:
    return -sum(term.idf for term in terms) / max(expected_rows(terms), 1e-9)


@dataclass(slots=True)
class Candidates:
    """The chunks to be scored: those that hold all terms of one of the conjunctions (a single term is one)."""

    conjunctions: list[Conjunction] = field(default_factory=list)
    _missed: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def rows(self) -> float:
        """Distinct chunks, if conjunctions were independent of each other."""
        return sum(chunks * (1 - missed) for (_, chunks), missed in self._missed.items())

    def add_within(self, conjunction: Conjunction, budget: float) -> bool:
        """Take it in unless more than `budget` chunks would be scored then."""
        place = (conjunction[0].cfg, conjunction[0].chunks)
        before = self._missed.get(place, 1.0)
        self._missed[place] = before * (1 - expected_rows(conjunction) / conjunction[0].chunks)
        if self.rows > budget:
            self._missed[place] = before
            return False
        self.conjunctions.append(conjunction)
        return True

    def holds(self, terms: Iterable[Term]) -> bool:
        """Whether chunks with all these terms are among the candidates."""
        together = set(terms)
        return any(together.issuperset(conjunction) for conjunction in self.conjunctions)

    def drop_implied(self) -> None:
        """Leave out conjunctions that hold another one: their chunks are candidates by that."""
        kept: list[Conjunction] = []
        for conjunction in sorted(self.conjunctions, key=len):
            if not any(set(conjunction).issuperset(other) for other in kept):
                kept.append(conjunction)
        self.conjunctions = kept

    def queries(self) -> Mapping[str, str]:
        """Text search configuration → tsquery."""
        by_cfg: dict[str, list[Conjunction]] = {}
        for conjunction in self.conjunctions:
            by_cfg.setdefault(conjunction[0].cfg, []).append(conjunction)
        return {cfg: " | ".join(map(_both, conjunctions)) for cfg, conjunctions in by_cfg.items()}


def choose(terms: Sequence[Term], budget: float) -> Candidates:
    """The rarest terms until the budget (in expected chunks) is spent, always one; then conjunctions of two to four of the rest, most idf per expected chunk first."""
    rarest = sorted((term for term in terms if term.df > 0), key=lambda term: (term.df, term.cfg, term.lexeme))
    chosen = Candidates()
    alone = 0
    while alone < len(rarest) and chosen.add_within((rarest[alone],), budget if alone else float("inf")):
        alone += 1
    for conjunction in sorted(_joined(rarest[alone:]), key=most_idf_per_row):
        if len(chosen.conjunctions) >= alone + CONJUNCTIONS:
            break
        if not chosen.holds(conjunction) and not chosen.add_within(conjunction, budget):
            break
    chosen.drop_implied()
    return chosen


def unseen(terms: Sequence[Term], seen: Candidates, least: float) -> list[Conjunction] | None:
    """Conjunctions such that every chunk outside `seen` whose score may reach `least` holds one of them: none means that the best are known. None when they are too many."""
    found: list[Conjunction] = []
    steps = 0

    def extend(held: Conjunction, bound: float, rest: Sequence[Term], reachable: float) -> bool:
        nonlocal steps
        steps += 1
        if held and seen.holds(held):
            return True
        if held and (bound >= least or len(held) == TOGETHER):
            found.append(held)
            return len(found) <= CONJUNCTIONS
        for place, term in enumerate(rest):
            if bound + reachable < least:
                return True
            reachable -= HEAVIEST * term.idf
            if steps > STEPS or not extend((*held, term), bound + HEAVIEST * term.idf, rest[place + 1 :], reachable):
                return False
        return True

    for group in _by_cfg(term for term in terms if term.df > 0 and not seen.holds((term,))):
        ordered = sorted(group, key=lambda term: (-term.idf, term.lexeme))
        if not extend((), 0.0, ordered, sum(HEAVIEST * term.idf for term in ordered)):
            return None
    return found


def _joined(frequent: Sequence[Term]) -> Iterable[Conjunction]:
    for group in _by_cfg(frequent):
        for size in range(2, TOGETHER + 1):
            yield from combinations(group[:JOINED], size)


def _by_cfg(terms: Iterable[Term]) -> list[list[Term]]:
    groups: dict[str, list[Term]] = {}
    for term in terms:
        groups.setdefault(term.cfg, []).append(term)
    return list(groups.values())


def _both(terms: Conjunction) -> str:
    return " & ".join(f"'{_escaped(term.lexeme)}'" for term in terms)


def _escaped(lexeme: str) -> str:
    return lexeme.replace("\\", "\\\\").replace("'", "''")
