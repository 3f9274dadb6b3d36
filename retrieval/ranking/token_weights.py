"""Weigh the tokens of a question by the idf of their words in the index.

The candidates of a question are alike, so a token that is rare among them may be common in the
index: idf over the candidates alone would favor such words.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from retrieval.question.words import LexemeIndex, extract_content_words, find_words
from schemas.ports.engines import TokenSpans


def weigh_tokens(
    text: str,
    spans: TokenSpans,
    language: str | None,
    idf: Mapping[str, Mapping[str, float]],
) -> NDArray[np.float32] | None:
    """Return one weight per token of `text`, 0 outside topical words; None without any weight.

    Of several text search configurations the first counts, which is that of the documents in which
    the words are most frequent. Words that it does not know weigh as much as the mean of the
    others.
    """
    weights_by_lexeme = next(iter(idf.values()), {})
    lexemes = LexemeIndex(weights_by_lexeme)
    content_words = set(extract_content_words(text, language))
    words = [
        (start, end, lexemes.find(word))
        for word, start, end in find_words(text)
        if word in content_words
    ]
    known = [weights_by_lexeme[lexeme] for _, _, lexeme in words if lexeme]
    if not known:
        return None
    weights = np.zeros(len(spans), np.float32)
    for start, end, lexeme in words:
        weight = weights_by_lexeme[lexeme] if lexeme else float(np.mean(known))
        weights[(spans[:, 0] < end) & (spans[:, 1] > start)] = weight
    return weights if weights.any() else None
