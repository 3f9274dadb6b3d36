"""Refusal: better no answer than one from passages that do not suit.

Each of the first passages is judged by itself, and one that suits is enough. With late interaction: its score, less the engine's background, against the
engine's threshold, which rises with the share of the question that the passage has no words for: a near miss is close in meaning (same document, same
subject) and lacks the very word that was asked for. A passage in another language than the question cannot be judged by words; its threshold is lower,
since such pairs score lower. A cross-encoder has read both texts, so its threshold stands as it is. Without a reranker the words alone decide.
Nothing suits a question of function words alone: whatever is close to it is so by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retrieval.parent_expansion import RankedParent
from retrieval.query_plan import QueryPlan
from retrieval.words import LexemeIndex, extract_content_words
from schemas.ports.engines import QueryEmbedding, Reranker
from schemas.ports.search import ChunkView
from schemas.profiles import AnswerProfile

CROSS_LANGUAGE_FACTOR = 0.85
"""Share of the threshold that is enough where question and passage are in different languages. Measured on our own questions: 45 % of those that documents
in the other language answer are refused, 31 % of the near misses pass. A lower share lets in near misses as fast as answers."""
WORD_WEIGHT = 0.5
"""How much of the way to a perfect match the whole weight of the question's words is worth, in a question of at most FEW topical words."""
FEW_KEYWORDS = 4
"""In a longer question words are worth less, in proportion: the more there are, the likelier some of them are said otherwise."""
USUAL_COVERAGE = 0.75
"""Share of the question's weight at which the engine's threshold stands as it is."""
MAX_THRESHOLD_RISE = 0.15
"""Words raise the threshold by no more: what is close enough in meaning suits, in whatever words."""
MIN_COVERAGE_WITHOUT_RERANKER = 0.25
"""Share of the question's idf mass that one of the first three passages must hold, where no reranker looked."""
_JUDGED_PASSAGES = 3


@dataclass(frozen=True, slots=True)
class RelevanceDecision:
    """`best` and `threshold` are those of the passage that is furthest above its threshold, or least below it; `background` is what was taken off.
    `refused` says what follows where the profile lets it."""

    refused: bool
    best: float | None
    threshold: float | None
    background: float
    reason: str


def check_relevance(
    parents: Sequence[RankedParent],
    plan: QueryPlan,
    idf: Mapping[str, Mapping[str, float]],
    reranker: Reranker | None,
    query: QueryEmbedding | None,
    profile: AnswerProfile,
) -> RelevanceDecision:
    """`reranker` is the one that scored `parents`, None where none did."""
    if not parents:
        return RelevanceDecision(True, None, None, 0.0, "nothing was found")
    if not plan.has_topic:
        return RelevanceDecision(True, None, None, 0.0, "the question holds function words only")
    judged_parents = [parent for parent in parents if parent.rerank_score is not None][:_JUDGED_PASSAGES]
    if reranker is None or not judged_parents:
        return _check_by_words(parents, plan, idf)
    background = get_background(reranker, query)
    engine_threshold = reranker.threshold if profile.threshold is None else profile.threshold
    threshold_idf = idf if reranker.role == "added" else {}
    scores_and_thresholds = [
        (parent.rerank_score - background, _compute_threshold(engine_threshold, parent.best.chunk, plan, threshold_idf))
        for parent in judged_parents
        if parent.rerank_score is not None
    ]
    best, threshold = max(scores_and_thresholds, key=lambda score_and_threshold: score_and_threshold[0] - score_and_threshold[1])
    return RelevanceDecision(best < threshold, best, threshold, background, f"best rerank score {best:.3f} against {threshold:.3f}")


def _compute_threshold(engine_threshold: float, chunk: ChunkView, plan: QueryPlan, idf: Mapping[str, Mapping[str, float]]) -> float:
    if _is_foreign(chunk, plan):
        return engine_threshold * CROSS_LANGUAGE_FACTOR
    passage_coverage = max((compute_coverage(chunk, plan, weights) for weights in idf.values()), default=USUAL_COVERAGE)
    word_weight = WORD_WEIGHT * min(1.0, FEW_KEYWORDS / max(1, len(plan.keywords)))
    return engine_threshold + min(MAX_THRESHOLD_RISE, word_weight * (USUAL_COVERAGE - passage_coverage))


def _is_foreign(chunk: ChunkView, plan: QueryPlan) -> bool:
    return plan.language_sure and chunk.language is not None and chunk.language.split("-")[0] != plan.language


def get_background(reranker: Reranker, query: QueryEmbedding | None) -> float:
    """What any passage would score: the engine's background for an added reranker, 0 for one whose scores have a zero of their own."""
    if reranker.role == "replaces" or query is None:
        return 0.0
    return query.background_maxsim_mean or 0.0


def _check_by_words(parents: Sequence[RankedParent], plan: QueryPlan, idf: Mapping[str, Mapping[str, float]]) -> RelevanceDecision:
    judged_chunks = [parent.best.chunk for parent in parents[:_JUDGED_PASSAGES]]
    comparable = [chunk for chunk in judged_chunks if not plan.language or not chunk.language or chunk.language == plan.language]
    if not comparable or not idf:
        return RelevanceDecision(False, None, None, 0.0, "no reranker, and words cannot tell")
    best = max(compute_coverage(chunk, plan, weights) for chunk in comparable for weights in idf.values())
    return RelevanceDecision(
        best < MIN_COVERAGE_WITHOUT_RERANKER, best, MIN_COVERAGE_WITHOUT_RERANKER, 0.0, f"passages hold {best:.0%} of the question's words by weight"
    )


def compute_coverage(chunk: ChunkView, plan: QueryPlan, idf: Mapping[str, float]) -> float:
    """Share of the question's idf mass that the chunk holds; a word that the corpus does not know weighs as much as its rarest one."""
    max_idf = max(idf.values(), default=1.0)
    covered_weight = total_weight = 0.0
    lexemes = LexemeIndex(idf)
    for word in extract_content_words(plan.question, plan.language):
        lexeme = lexemes.find(word)
        weight = idf[lexeme] if lexeme else max_idf
        total_weight += weight
        covered_weight += weight if lexeme and chunk.positions.get(lexeme) else 0.0
    return covered_weight / total_weight if total_weight else 1.0
