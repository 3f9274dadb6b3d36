"""Score adjacent word pairs of the query from the word positions of the candidates. Nothing is
stored.

BM25 over pairs. The idf of a pair is taken as 0.8 × the sum of its words' idf: counting pairs would
need tens of millions of terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from uuid import UUID

from retrieval.words import LexemeIndex, extract_content_words
from schemas.generations import LexicalConfig
from schemas.ports.search import ChunkView

IDF_SHARE = 0.8
_LEXEMES_PER_CHARACTER = 1 / 8.5

Pair = tuple[str, str]


def score_pairs(
    question: str,
    chunks: Iterable[ChunkView],
    idf: Mapping[str, Mapping[str, float]],
    config: LexicalConfig,
) -> dict[UUID, float]:
    """Return the pair BM25 by chunk id, 0 where no pair of the query occurs.

    The best text search configuration counts: a chunk holds the lexemes of one only.
    """
    pairs = [weigh_question_pairs(question, weights) for weights in idf.values()]
    return {
        chunk.chunk_id: max((_score(chunk, weighted, config) for weighted in pairs), default=0.0)
        for chunk in chunks
    }


def weigh_question_pairs(question: str, idf: Mapping[str, float]) -> dict[Pair, float]:
    """Return the idf of each pair of lexemes whose words are adjacent in the query, function words
    aside.
    """
    lexeme_index = LexemeIndex(idf)
    lexemes = [lexeme_index.find(word) for word in extract_content_words(question)]
    return {
        (left, right): IDF_SHARE * (idf[left] + idf[right])
        for left, right in pairwise(lexemes)
        if left and right and left != right
    }


def _score(chunk: ChunkView, pairs: Mapping[Pair, float], config: LexicalConfig) -> float:
    length = (len(chunk.text) + len(chunk.prefix)) * _LEXEMES_PER_CHARACTER
    score = 0.0
    positions_by_lexeme = {
        lexeme: chunk.positions.get(lexeme, ())
        for lexeme in {lexeme for pair in pairs for lexeme in pair}
    }
    for (left, right), weight in pairs.items():
        count = count_adjacent(positions_by_lexeme[left], positions_by_lexeme[right])
        score += weight * config.compute_weight(count, length)
    return score


def count_adjacent(left: Sequence[int], right: Sequence[int]) -> int:
    """Count the positions in `right` that directly follow one in `left`."""
    return len({position + 1 for position in left}.intersection(right)) if left and right else 0
