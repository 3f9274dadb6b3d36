"""Search lexically: exact BM25, with each document's own text search configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.generations import LexicalConfig
from schemas.ports.search import Hit, LexicalHits
from sql.errors import translate_database_errors
from sql.index.bm25 import CandidateSet, Term, choose_candidates, find_unseen_conjunctions
from sql.index.search_scope import SearchScope
from sql.index.text_search_config import resolve_text_search_config
from sql.pool import Connection, Pool
from sql.query_loader import load_query

WIDENING_FACTOR = 4
"""Factor on the budget of the second pass, if an unseen chunk could still rank."""
SPARE_HITS = 20
"""Candidates to look up beyond the wanted ones, in place of those that are not visible."""
UNLIMITED = float("inf")
MAX_WORDS = 20_000
"""Words per transaction. It must stay short: readers of the log wait for writing transactions."""


async def search_lexical(
    connection: Connection,
    scope: SearchScope,
    text: str,
    language: str | None,
    k: int,
    budget: int,
    config: LexicalConfig,
) -> LexicalHits:
    terms = await fetch_terms(connection, scope, text, language)
    candidates = choose_candidates(
        # A few listed documents bound the candidates already.
        terms,
        UNLIMITED if scope.listed_documents is not None else budget,
    )
    hits = await _fetch_hits(connection, scope, terms, candidates, k)
    remaining = find_unseen_conjunctions(terms, candidates, _compute_min_score(hits, k), config)
    # An empty list, not None: None means that the search for a bound was given up.
    if remaining == []:
        return LexicalHits(hits, _collect_idf(terms), "exact")
    wider, is_exhaustive = _widen_candidates(terms, remaining, budget * WIDENING_FACTOR)
    # A frequent term alone exceeds both budgets: the same chunks would be scored again.
    if wider.conjunctions != candidates.conjunctions:
        hits = _select_best([*hits, *await _fetch_hits(connection, scope, terms, wider, k)], k)
    is_exact = (
        is_exhaustive
        or find_unseen_conjunctions(terms, wider, _compute_min_score(hits, k), config) == []
    )
    return LexicalHits(hits, _collect_idf(terms), "exact" if is_exact else "bounded")


async def fetch_terms(
    connection: Connection, scope: SearchScope, text: str, language: str | None
) -> list[Term]:
    """Return the query's lexemes under each configuration in use, including unseen ones for their
    idf.
    """
    configuration = resolve_text_search_config(language)
    rows = await connection.fetch(
        load_query("lexical_terms"), scope.generation, scope.tenant, text, configuration
    )
    return [Term(row["cfg"], row["lexeme"], row["df"], row["chunks"]) for row in rows]


def _widen_candidates(
    terms: Sequence[Term], remaining: Sequence[tuple[Term, ...]] | None, budget: float
) -> tuple[CandidateSet, bool]:
    """Return the candidates of the second pass, and whether they include every chunk that could
    rank.
    """
    if remaining is not None:
        missing = CandidateSet()
        if all(missing.try_add(conjunction, budget) for conjunction in remaining):
            return missing, True
    return choose_candidates(terms, budget), False


async def _fetch_hits(
    connection: Connection,
    scope: SearchScope,
    terms: Sequence[Term],
    candidates: CandidateSet,
    k: int,
) -> list[Hit]:
    hits: list[Hit] = []
    if scope.is_empty:
        return hits
    for cfg, query in candidates.to_tsqueries().items():
        parameters = [*scope.to_parameters(), cfg, query, _format_weights(terms, cfg), k]
        # Sorting all candidates would cost as much as scoring them. Nearly all chunks are visible,
        # so that some spare ones suffice; filters may drop any number.
        limit = k + SPARE_HITS if scope.filters is None else None
        rows = await connection.fetch(load_query("lexical_hits"), *parameters, limit)
        if limit is not None and len(rows) < k:
            rows = await connection.fetch(load_query("lexical_hits"), *parameters, None)
        hits.extend(Hit(row["id"], row["document_id"], row["score"]) for row in rows)
    return _select_best(hits, k)


def _format_weights(terms: Sequence[Term], cfg: str) -> str:
    """Format the query as a sparse vector of idf by term id. Of terms with the same id the heavier
    counts.
    """
    by_id: dict[int, float] = {}
    for term in terms:
        if term.cfg == cfg and term.df > 0:
            by_id[term.id] = max(term.idf, by_id.get(term.id, 0.0))
    return "{" + ",".join(f"{term_id}:{idf:.6g}" for term_id, idf in by_id.items()) + "}/1000000000"


def _select_best(hits: Sequence[Hit], k: int) -> list[Hit]:
    # Both passes may return the same chunk.
    distinct = {hit.chunk_id: hit for hit in hits}
    return sorted(distinct.values(), key=lambda hit: (-hit.score, hit.chunk_id))[:k]


def _compute_min_score(hits: Sequence[Hit], k: int) -> float:
    """Return the score that an unseen chunk must reach to be among the best k."""
    return hits[-1].score if len(hits) >= k else 0.0


def _collect_idf(terms: Sequence[Term]) -> Mapping[str, Mapping[str, float]]:
    idf: dict[str, dict[str, float]] = {}
    frequencies: dict[str, int] = {}
    for term in terms:
        idf.setdefault(term.cfg, {})[term.lexeme] = term.idf
        frequencies[term.cfg] = frequencies.get(term.cfg, 0) + term.df
    return {cfg: idf[cfg] for cfg in sorted(idf, key=lambda cfg: (-frequencies[cfg], cfg))}


async def compact_lexical(pool: Pool, generation: str, *, max_words: int = MAX_WORDS) -> int:
    """Compact deltas in one short transaction and return how many rows were replaced.

    Call it again until it returns 0. Also returns 0 while another call compacts the same
    generation. Raises DatabaseUnavailable.
    """
    with translate_database_errors():
        async with pool.acquire(timeout=60) as connection, connection.transaction():
            if not await connection.fetchval(
                # Tried, not waited for: the other call does the same work.
                "select pg_try_advisory_xact_lock(hashtext('compact_lexical ' || $1))",
                generation,
            ):
                return 0
            n_folded: int = await connection.fetchval(
                load_query("compact_words"), generation, max_words
            )
            return n_folded + int(
                await connection.fetchval(load_query("compact_corpus"), generation)
            )
