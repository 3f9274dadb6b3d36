"""Refusal: better no answer than one from passages that do not suit.

With a reranker: its best score, less the engine's background, against the reranker's threshold. Without one: the words of the question that no
candidate holds. A question in another language than the best passages has no words in common with them, so there only an empty result refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retrieval.expand import RankedParent
from retrieval.plan import Plan
from retrieval.words import content_words, same_word
from schemas.ports.engines import EmbeddedQuery, Reranker
from schemas.ports.search import ChunkView
from schemas.profiles import AnswerProfile

ACROSS_LANGUAGES = 0.85
"""Share of the threshold that is enough where question and best passage are in different languages: such pairs score lower. Set by hand, not calibrated."""
LEAST_COVERAGE = 0.25
"""Share of the question's idf mass that one of the first three passages must hold, where no reranker looked."""
_LOOKED_AT = 3


@dataclass(frozen=True, slots=True)
class Suitability:
    """`best` and `threshold` are comparable; `background` is what was taken off. `refused` says what follows where the profile lets it."""

    refused: bool
    best: float | None
    threshold: float | None
    background: float
    reason: str


def judge_suitability(
    parents: Sequence[RankedParent],
    plan: Plan,
    idf: Mapping[str, Mapping[str, float]],
    reranker: Reranker | None,
    query: EmbeddedQuery | None,
    profile: AnswerProfile,
) -> Suitability:
    """`reranker` is the one that scored `parents`, None where none did."""
    if not parents:
        return Suitability(True, None, None, 0.0, "nothing was found")
    scores = [parent.rerank for parent in parents if parent.rerank is not None]
    if reranker is None or not scores:
        return _by_words(parents, plan, idf)
    background = background_of(reranker, query)
    threshold = (reranker.threshold if profile.threshold is None else profile.threshold) * _leniency(parents, plan)
    best = max(scores) - background
    return Suitability(best < threshold, best, threshold, background, f"best rerank score {best:.3f} against {threshold:.3f}")


def _leniency(parents: Sequence[RankedParent], plan: Plan) -> float:
    best = max(parents, key=lambda parent: parent.rerank if parent.rerank is not None else float("-inf"))
    spoken = best.best.chunk.language
    return ACROSS_LANGUAGES if plan.language_sure and spoken and spoken.split("-")[0] != plan.language else 1.0


def background_of(reranker: Reranker, query: EmbeddedQuery | None) -> float:
    """What any passage would score: the engine's background for an added reranker, 0 for one whose scores have a zero of their own."""
    if reranker.role == "replaces" or query is None:
        return 0.0
    return query.background_maxsim_mean or 0.0


def _by_words(parents: Sequence[RankedParent], plan: Plan, idf: Mapping[str, Mapping[str, float]]) -> Suitability:
    looked_at = [parent.best.chunk for parent in parents[:_LOOKED_AT]]
    comparable = [chunk for chunk in looked_at if not plan.language or not chunk.language or chunk.language == plan.language]
    if not comparable or not idf:
        return Suitability(False, None, None, 0.0, "no reranker, and words cannot tell")
    best = max(coverage(chunk, plan, weights) for chunk in comparable for weights in idf.values())
    return Suitability(best < LEAST_COVERAGE, best, LEAST_COVERAGE, 0.0, f"passages hold {best:.0%} of the question's words by weight")


def coverage(chunk: ChunkView, plan: Plan, idf: Mapping[str, float]) -> float:
    """Share of the question's idf mass that the chunk holds; a word that the corpus does not know weighs as much as its rarest one."""
    rarest = max(idf.values(), default=1.0)
    held = total = 0.0
    for word in content_words(plan.question, plan.language):
        lexeme = max((item for item in idf if same_word(word, item)), key=len, default=None)
        weight = idf[lexeme] if lexeme else rarest
        total += weight
        held += weight if lexeme and chunk.positions.get(lexeme) else 0.0
    return held / total if total else 1.0
