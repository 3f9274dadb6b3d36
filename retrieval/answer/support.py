"""Whether a sentence is in its sources: by its words, numbers and names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retrieval.answer.quotables import Quotable
from retrieval.words import content_words, word_key

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def word_keys(text: str) -> set[str]:
    return {word_key(word) for word in content_words(text)}


def share_held(sentence: str, sources: Sequence[str]) -> float:
    """Share of the sentence's topical words that the sources hold in some form; 1 for a sentence without any."""
    asked = word_keys(sentence)
    held = {key for source in sources for key in word_keys(source)}
    return len(asked & held) / len(asked) if asked else 1.0


def unsupported_numbers(sentence: str, sources: Sequence[str]) -> list[str]:
    """Numbers that no source has; thousands separators do not matter."""
    held = {_bare(number) for source in sources for number in _NUMBER.findall(source)}
    return [number for number in _NUMBER.findall(sentence) if _bare(number) not in held]


def _bare(number: str) -> str:
    return re.sub(r"[.,]", "", number)


def best_support(sentence: str, items: Sequence[Quotable], most: int) -> tuple[list[Quotable], float]:
    """The fewest quotes, up to `most`, that together hold the most of the sentence, and what share that is."""
    chosen: list[Quotable] = []
    share = 0.0
    while len(chosen) < most:
        texts = [item.readable for item in chosen]
        best = max(items, key=lambda item: share_held(sentence, [*texts, item.readable]), default=None)
        reached = share_held(sentence, [*texts, best.readable]) if best is not None else 0.0
        if best is None or reached < share + 0.1:
            break
        chosen.append(best)
        share = reached
    return chosen, share
