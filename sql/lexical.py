"""The lexical channel: exact BM25, each document in its own language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.ports.search import Hit, LexicalHits
from sql.bm25 import Candidates, Term, choose, unseen
from sql.languages import text_config
from sql.pool import Connection
from sql.scope import Scope
from sql.statements import statement

WIDER = 4
"""Times the budget, when an unseen chunk could still win."""
EVERYTHING = float("inf")


async def search(connection: Connection, scope: Scope, text: str, language: str | None, k: int, budget: int) -> LexicalHits:
    terms = await read_terms(connection, scope, text, language)
    seen = choose(terms, EVERYTHING if scope.few is not None else budget)
    hits = await _hits(connection, scope, terms, seen, k)
    left = unseen(terms, seen, _least(hits, k))
    if left == []:
        return LexicalHits(hits, _idf(terms), "exact")
    seen, all_seen = _widened(terms, seen, left, budget * WIDER)
    hits = _best([*hits, *await _hits(connection, scope, terms, seen, k)], k)
    exact = all_seen or unseen(terms, seen, _least(hits, k)) == []
    return LexicalHits(hits, _idf(terms), "exact" if exact else "bounded")


async def read_terms(connection: Connection, scope: Scope, text: str, language: str | None) -> list[Term]:
    """The question's lexemes under each configuration in use; unknown ones too, for their idf."""
    configuration = text_config(language)
    rows = await connection.fetch(statement("lexical_terms"), scope.generation, scope.tenant, text, configuration)
    return [Term(row["cfg"], row["lexeme"], row["df"], row["chunks"]) for row in rows]


def _widened(terms: Sequence[Term], seen: Candidates, left: Sequence[tuple[Term, ...]] | None, budget: float) -> tuple[Candidates, bool]:
    """What to look at next, and whether all that could win is in it then."""
    if left is not None:
        missing = Candidates()
        if all(missing.add_within(conjunction, budget) for conjunction in left):
            return missing, True
    return choose(terms, budget), False


async def _hits(connection: Connection, scope: Scope, terms: Sequence[Term], candidates: Candidates, k: int) -> list[Hit]:
    found: list[Hit] = []
    if scope.empty:
        return found
    for cfg, query in candidates.queries().items():
        rows = await connection.fetch(statement("lexical_hits"), *scope.parameters(), cfg, query, _weights(terms, cfg), k)
        found.extend(Hit(row["id"], row["document_id"], row["score"]) for row in rows)
    return _best(found, k)


def _weights(terms: Sequence[Term], cfg: str) -> str:
    """The question as a sparse vector over term ids; terms that share an id count once, the heavier."""
    by_id: dict[int, float] = {}
    for term in terms:
        if term.cfg == cfg and term.df > 0:
            by_id[term.id] = max(term.idf, by_id.get(term.id, 0.0))
    return "{" + ",".join(f"{place}:{idf:.6g}" for place, idf in by_id.items()) + "}/1000000000"


def _best(hits: Sequence[Hit], k: int) -> list[Hit]:
    distinct = {hit.chunk_id: hit for hit in hits}
    return sorted(distinct.values(), key=lambda hit: (-hit.score, hit.chunk_id))[:k]


def _least(hits: Sequence[Hit], k: int) -> float:
    """What an unseen chunk must reach to be among the best."""
    return hits[-1].score if len(hits) >= k else 0.0


def _idf(terms: Sequence[Term]) -> Mapping[str, Mapping[str, float]]:
    idf: dict[str, dict[str, float]] = {}
    for term in terms:
        idf.setdefault(term.cfg, {})[term.lexeme] = term.idf
    return idf
