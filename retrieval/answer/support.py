"""Measure whether sources support a sentence, by its words and numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retrieval.answer.quote_candidates import QuoteCandidate
from retrieval.words import extract_content_words, stem_word

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def extract_word_keys(text: str) -> set[str]:
    return {stem_word(word) for word in extract_content_words(text)}


def compute_support(sentence: str, sources: Sequence[str]) -> float:
    """Return the share of the sentence's topical words that the sources hold.

    1 for a sentence without any.
    """
    sentence_keys = extract_word_keys(sentence)
    source_keys = {key for source in sources for key in extract_word_keys(source)}
    return len(sentence_keys & source_keys) / len(sentence_keys) if sentence_keys else 1.0


def find_unsupported_numbers(sentence: str, sources: Sequence[str]) -> list[str]:
    """Return the numbers that no source contains; thousands separators are ignored."""
    source_numbers = {
        _strip_separators(number) for source in sources for number in _NUMBER.findall(source)
    }
    return [
        number
        for number in _NUMBER.findall(sentence)
        if _strip_separators(number) not in source_numbers
    ]


def _strip_separators(number: str) -> str:
    return re.sub(r"[.,]", "", number)


def choose_quotes(
    sentence: str, candidates: Sequence[QuoteCandidate], max_quotes: int
) -> tuple[list[QuoteCandidate], float]:
    """Return the quotes that hold most of the sentence, and the share held.

    Takes as few as possible, `max_quotes` at most.
    """
    quotes: list[QuoteCandidate] = []
    support = 0.0
    while len(quotes) < max_quotes:
        texts = [candidate.readable_text for candidate in quotes]
        best = max(
            candidates,
            key=lambda candidate: compute_support(sentence, [*texts, candidate.readable_text]),
            default=None,
        )
        next_support = (
            compute_support(sentence, [*texts, best.readable_text]) if best is not None else 0.0
        )
        if best is None or next_support < support + 0.1:
            break
        quotes.append(best)
        support = next_support
    return quotes, support
