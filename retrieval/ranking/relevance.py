"""Relevance check by rules: refuse to answer from passages that are not relevant to the query.

Where the index has token states, `retrieval.answering.confidence` decides instead when a question
is answered; these rules then only widen a route that found nothing.

Each of the first passages is judged by itself, and one relevant passage is enough.

Late interaction: the score, less the engine's background, must reach the engine's threshold. The
threshold rises with the share of the query's words that the passage lacks: a near miss is close in
meaning but lacks the very word that matters. A passage in another language cannot be judged by
words; its threshold is lower, since such pairs score lower.

Cross-encoder: word coverage leaves its threshold unchanged, since the model has read both texts.
Without a reranker, word coverage alone decides. A query of function words alone is always refused:
any match would be by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from retrieval.evidence_model import EVIDENCE_MODEL
from retrieval.question.query_plan import QueryPlan
from retrieval.question.words import LexemeIndex, extract_content_words
from retrieval.ranking.candidate_retrieval import ChannelCandidates
from retrieval.ranking.passages import ContextPassage, RankedParent
from schemas.answer_profiles import AnswerProfile
from schemas.ports.engines import QueryEmbedding, Reranker
from schemas.ports.search import ChunkView
from schemas.questions import Confidence

# Best passages to judge; one relevant passage is enough.
JUDGED_PASSAGES = 3
# Factor on the threshold for a passage in another language than the question. Measured on our own
# queries: 45 % of those that the other language answers are refused, and 31 % of the near misses
# pass. Lower values admit near misses as fast as answers.
FOREIGN_FACTOR = 0.85
# Share of the question's idf mass in a passage at which the reranker's threshold applies unchanged;
# it rises below and falls above.
USUAL_COVERAGE = 0.75
# Change of the threshold per share of the idf mass.
WORD_WEIGHT = 0.5
# Topical words of a question up to which WORD_WEIGHT is full. It shrinks in proportion for longer
# questions, which are likely to be paraphrased.
FEW_KEYWORDS = 4
# Most that missing words raise the threshold.
MAX_RISE = 0.15
# Share of the question's idf mass that a passage must hold where nothing is reranked.
MIN_COVERAGE = 0.25
# Multiple of the threshold from which on the best passage is a clear match. Below, the confidence
# is low.
CLEAR_FACTOR = 1.2


@dataclass(frozen=True, slots=True)
class RelevanceDecision:
    """The decision, with the numbers behind it.

    `best` and `threshold` belong to the passage with the largest margin; `background` was
    subtracted from its score. `refused` takes effect only when the profile allows refusal.
    `probability` is that the quotes answer the question (`retrieval.answering.confidence`), None
    when the rules here decided. `missing_terms` are codes of the question that no passage holds,
    and `alternatives` similar ones that they hold.
    """

    refused: bool
    best: float | None
    threshold: float | None
    background: float
    reason: str
    probability: float | None = None
    missing_terms: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()

    @property
    def is_confident(self) -> bool:
        """True unless the estimated confidence is low."""
        return self.probability is None or self.probability >= EVIDENCE_MODEL.medium_from


def check_relevance(
    parents: Sequence[RankedParent],
    plan: QueryPlan,
    idf: Mapping[str, Mapping[str, float]],
    reranker: Reranker | None,
    query: QueryEmbedding | None,
    profile: AnswerProfile,
) -> RelevanceDecision:
    """Decide whether any parent is relevant. `reranker` scored `parents`, unless it is None."""
    if not parents:
        return RelevanceDecision(True, None, None, 0.0, "no passages were found")
    if not plan.has_topic:
        return RelevanceDecision(True, None, None, 0.0, "the question has function words only")
    judged_parents = [parent for parent in parents if parent.rerank_score is not None][
        :JUDGED_PASSAGES
    ]
    if reranker is None or not judged_parents:
        return _check_by_words(parents, plan, idf)
    background = get_background(reranker, query)
    engine_threshold = reranker.threshold if profile.threshold is None else profile.threshold
    # A cross-encoder has read the words: without idf, coverage does not move its threshold.
    threshold_idf = idf if reranker.role == "added" else {}
    scores_and_thresholds = [
        (
            parent.rerank_score - background,
            _compute_threshold(engine_threshold, parent.best.chunk, plan, threshold_idf),
        )
        for parent in judged_parents
        if parent.rerank_score is not None
    ]
    # By margin, not by score: the thresholds differ by language and words.
    best, threshold = max(
        scores_and_thresholds,
        key=lambda score_and_threshold: score_and_threshold[0] - score_and_threshold[1],
    )
    return RelevanceDecision(
        best < threshold,
        best,
        threshold,
        background,
        f"best rerank score {best:.3f} against {threshold:.3f}",
    )


def _compute_threshold(
    engine_threshold: float,
    chunk: ChunkView,
    plan: QueryPlan,
    idf: Mapping[str, Mapping[str, float]],
) -> float:
    if plan.is_foreign(chunk.language):
        return engine_threshold * FOREIGN_FACTOR
    passage_coverage = max(
        (compute_coverage(chunk, plan, weights) for weights in idf.values()),
        default=USUAL_COVERAGE,
    )
    word_weight = WORD_WEIGHT * min(1.0, FEW_KEYWORDS / max(1, len(plan.keywords)))
    return engine_threshold + min(MAX_RISE, word_weight * (USUAL_COVERAGE - passage_coverage))


def get_background(reranker: Reranker, query: QueryEmbedding | None) -> float:
    """Return the score that any passage would reach.

    0 for rerankers that replace scores: theirs have a zero of their own.
    """
    if reranker.role == "replaces" or query is None:
        return 0.0
    return query.background_maxsim_mean or 0.0


def _check_by_words(
    parents: Sequence[RankedParent],
    plan: QueryPlan,
    idf: Mapping[str, Mapping[str, float]],
) -> RelevanceDecision:
    judged_chunks = [parent.best.chunk for parent in parents[:JUDGED_PASSAGES]]
    comparable = [
        chunk
        for chunk in judged_chunks
        if not plan.language or not chunk.language or chunk.language == plan.language
    ]
    # Passages that cannot be judged are no reason to refuse.
    if not comparable or not idf:
        return RelevanceDecision(False, None, None, 0.0, "no reranker, and no words to compare")
    best = max(
        compute_coverage(chunk, plan, weights) for chunk in comparable for weights in idf.values()
    )
    return RelevanceDecision(
        best < MIN_COVERAGE,
        best,
        MIN_COVERAGE,
        0.0,
        f"passages hold {best:.0%} of the question's words by weight",
    )


def compute_coverage(chunk: ChunkView, plan: QueryPlan, idf: Mapping[str, float]) -> float:
    """Return the share of the query's idf mass that the chunk holds.

    A word that the corpus lacks weighs as much as the rarest known one.
    """
    max_idf = max(idf.values(), default=1.0)
    covered_weight = total_weight = 0.0
    lexemes = LexemeIndex(idf)
    for word in extract_content_words(plan.question, plan.language):
        lexeme = lexemes.find(word)
        weight = idf[lexeme] if lexeme else max_idf
        total_weight += weight
        covered_weight += weight if lexeme and chunk.positions.get(lexeme) else 0.0
    return covered_weight / total_weight if total_weight else 1.0


def rate_confidence(
    relevance: RelevanceDecision,
    contexts: Sequence[ContextPassage],
    candidates: ChannelCandidates,
) -> Confidence:
    """Rate an answer as high, medium or low.

    By the estimated probability; without one, high for a clear best score and two sources or a
    linked entity, low for a score just above the threshold. Always low when refused, without
    contexts, or after a failed channel.
    """
    n_sources = len({context.parent.document_id for context in contexts})
    is_clear = (
        relevance.best is not None
        and relevance.threshold is not None
        and relevance.best >= CLEAR_FACTOR * relevance.threshold
    )
    reasons = [
        relevance.reason,
        f"{n_sources} distinct {'source' if n_sources == 1 else 'sources'}",
    ]
    # A name of several types is a seed for each.
    linked_names = list(dict.fromkeys(seed.key for seed in candidates.linked_seeds))
    if linked_names:
        reasons.append(f"linked: {', '.join(linked_names[:3])}")
    reasons += [f"channel {channel} failed" for channel in candidates.failed]
    if relevance.missing_terms:
        reasons.append(f"no passage contains {', '.join(relevance.missing_terms)}")
    probability = relevance.probability
    if relevance.refused or candidates.failed or not contexts:
        return Confidence(level="low", probability=probability, reasons=reasons)
    if probability is not None:
        level: Literal["high", "medium", "low"] = "low"
        if probability >= EVIDENCE_MODEL.medium_from:
            level = "high" if probability >= EVIDENCE_MODEL.high_from else "medium"
        return Confidence(level=level, probability=probability, reasons=reasons)
    if is_clear and (n_sources >= 2 or candidates.linked_seeds):
        return Confidence(level="high", reasons=reasons)
    return Confidence(
        level="medium" if is_clear or relevance.best is None else "low", reasons=reasons
    )


def lower_confidence(confidence: Confidence, reason: str) -> Confidence:
    """Return the confidence one level lower, with the reason first."""
    return Confidence(
        level="medium" if confidence.level == "high" else "low",
        probability=confidence.probability,
        reasons=[reason, *confidence.reasons],
    )
