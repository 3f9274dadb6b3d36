"""Search lexically: exact BM25, with the text search configuration of each document's language.

Few chunks are scored, and the best are among them. The BM25 score of a chunk is the sum of idf ×
weight over the query's terms, and no weight exceeds `LexicalConfig.max_weight`. A chunk that
contains only frequent terms therefore has an upper bound (MaxScore: Turtle and Flood, Query
Evaluation: Strategies and Optimizations, 1995). Every chunk with a rare term is a candidate; chunks
with frequent terms are candidates only if they contain several of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from itertools import combinations
from math import log, prod

from schemas.generations import LexicalConfig
from schemas.ports.search import Hit, LexicalHits
from sql.database import Connection, Pool, acquire, load_query
from sql.index.snapshot import SearchScope

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


# Snowball configurations bundled with Postgres 15 and later, by BCP 47 primary subtag.
TEXT_SEARCH_CONFIGS = {
    "ar": "arabic",
    "hy": "armenian",
    "eu": "basque",
    "ca": "catalan",
    "da": "danish",
    "nl": "dutch",
    "en": "english",
    "fi": "finnish",
    "fr": "french",
    "de": "german",
    "el": "greek",
    "hi": "hindi",
    "hu": "hungarian",
    "id": "indonesian",
    "ga": "irish",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    "no": "norwegian",
    "nb": "norwegian",
    "nn": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "es": "spanish",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}
DEFAULT_TEXT_SEARCH_CONFIG = "simple"


def resolve_text_search_config(language: str | None) -> str:
    """Return the configuration for the primary subtag of a BCP 47 tag.

    Falls back to `simple`, which neither stems nor removes stop words.
    """
    return TEXT_SEARCH_CONFIGS.get(
        (language or "").replace("_", "-").split("-")[0].lower(), DEFAULT_TEXT_SEARCH_CONFIG
    )


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


async def compact_lexical(
    pool: Pool, generation: str, *, max_words: int = MAX_WORDS, waits: bool = False
) -> int:
    """Compact deltas in one short transaction and return how many rows were replaced.

    Call it again until it returns 0. Also returns 0 while another call compacts the same
    generation, unless it `waits` for that: an erasure has to fold rows that the other call may not
    see. Raises DatabaseUnavailable.
    """
    async with acquire(pool, timeout_s=60) as connection, connection.transaction():
        lock = "pg_advisory_xact_lock" if waits else "pg_try_advisory_xact_lock"
        is_free = await connection.fetchval(
            f"select {lock}(hashtext('compact_lexical ' || $1))", generation
        )
        # None after waiting: `pg_advisory_xact_lock` returns nothing.
        if is_free is False:
            return 0
        n_folded: int = await connection.fetchval(
            load_query("compact_words"), generation, max_words
        )
        return n_folded + int(await connection.fetchval(load_query("compact_corpus"), generation))
