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

from retrieval.expand import RankedParent
from retrieval.plan import Plan
from retrieval.words import LexemeIndex, content_words
from schemas.ports.engines import EmbeddedQuery, Reranker
from schemas.ports.search import ChunkView
from schemas.profiles import AnswerProfile

ACROSS_LANGUAGES = 0.85
"""Share of the threshold that is enough where question and passage are in different languages. Measured on our own questions: 45 % of those that documents
in the other language answer are refused, 31 % of the near misses pass. A lower share lets in near misses as fast as answers."""
WORDS = 0.5
"""How much of the way to a perfect match the whole weight of the question's words is worth, in a question of at most FEW topical words."""
FEW = 4
"""In a longer question words are worth less, in proportion: the more there are, the likelier some of them are said otherwise."""
USUAL_COVERAGE = 0.75
"""Share of the question's weight at which the engine's threshold stands as it is."""
MOST_RISE = 0.15
"""Words raise the threshold by no more: what is close enough in meaning suits, in whatever words."""
LEAST_COVERAGE = 0.25
"""Share of the question's idf mass that one of the first three passages must hold, where no reranker looked."""
_LOOKED_AT = 3


@dataclass(frozen=True, slots=True)
class Suitability:
    """`best` and `threshold` are those of the passage that is furthest above its threshold, or least below it; `background` is what was taken off.
    `refused` says what follows where the profile lets it."""

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
    if not plan.has_topic:
        return Suitability(True, None, None, 0.0, "the question holds function words only")
    judged = [parent for parent in parents if parent.rerank is not None][:_LOOKED_AT]
    if reranker is None or not judged:
        return _by_words(parents, plan, idf)
    background = background_of(reranker, query)
    engine = reranker.threshold if profile.threshold is None else profile.threshold
    weighed = idf if reranker.role == "added" else {}
    bars = [(parent.rerank - background, _threshold(engine, parent.best.chunk, plan, weighed)) for parent in judged if parent.rerank is not None]
    best, threshold = max(bars, key=lambda bar: bar[0] - bar[1])
    return Suitability(best < threshold, best, threshold, background, f"best rerank score {best:.3f} against {threshold:.3f}")


def _threshold(engine: float, chunk: ChunkView, plan: Plan, idf: Mapping[str, Mapping[str, float]]) -> float:
    if _foreign(chunk, plan):
        return engine * ACROSS_LANGUAGES
    held = max((coverage(chunk, plan, weights) for weights in idf.values()), default=USUAL_COVERAGE)
    worth = WORDS * min(1.0, FEW / max(1, len(plan.keywords)))
    return engine + min(MOST_RISE, worth * (USUAL_COVERAGE - held))


def _foreign(chunk: ChunkView, plan: Plan) -> bool:
    return plan.language_sure and chunk.language is not None and chunk.language.split("-")[0] != plan.language


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
    lexemes = LexemeIndex(idf)
    for word in content_words(plan.question, plan.language):
        lexeme = lexemes.find(word)
        weight = idf[lexeme] if lexeme else rarest
        total += weight
        held += weight if lexeme and chunk.positions.get(lexeme) else 0.0
    return held / total if total else 1.0
