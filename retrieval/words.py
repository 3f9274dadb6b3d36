"""Words of a text, and the function words that carry no topic."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import islice

import yaml

MIN_ROOT_LETTERS, MAX_ENDING_LETTERS = 3, 7
_WORD = re.compile(r"\w+(?:['’]\w+)?")

FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(listed.split()) for language, listed in yaml.safe_load((files("retrieval") / "function_words.yaml").read_text(encoding="utf-8")).items()
}
_ALL_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())
# Words that are topic in one language and function in another ("die", "es", "no") stay function words: a question has enough others.


def split_words(text: str) -> list[str]:
    """Lower-case words in order, numbers included."""
    return [match.group().lower() for match in _WORD.finditer(text)]


def extract_content_words(text: str, language: str | None = None) -> list[str]:
    """Words that carry the topic, in order; without a language the function words of all five count as such."""
    stop_words = FUNCTION_WORDS.get(language or "", _ALL_FUNCTION_WORDS)
    return [word for word in split_words(text) if word not in stop_words and (len(word) > 1 or word.isdigit())]


def strip_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))


def guess_language(text: str) -> str | None:
    """The one of five languages whose function words the text holds most of, if it is clearly ahead (two more than the next); None when unsure."""
    (best, language), (second, _) = _count_votes(text)
    return language if best - second >= 2 else None


def guess_likelier_language(text: str) -> str | None:
    """The language that is ahead at all, for texts that nothing else tells."""
    (best, language), (second, _) = _count_votes(text)
    return language if best > second else None


def _count_votes(text: str) -> list[tuple[int, str]]:
    """Function words of the two likeliest languages in the text."""
    text_words = split_words(text)
    return sorted(((sum(word in stop_words for word in text_words), language) for language, stop_words in FUNCTION_WORDS.items()), reverse=True)[:2]


def truncate_to_content_words(text: str, max_words: int, language: str | None = None) -> str:
    """`text` up to the end of its content word number `most`."""
    stop_words = FUNCTION_WORDS.get(language or "", _ALL_FUNCTION_WORDS)
    content_matches = (match for match in _WORD.finditer(text) if match.group().lower() not in stop_words)
    first_excess = next(islice(content_matches, max_words, None), None)
    return text[: first_excess.start()].rstrip() if first_excess else text


class LexemeIndex:
    """Lexemes by the beginnings of words that a stemmer could have made them of, so that a word is compared with a handful and not with all."""

    def __init__(self, lexemes: Iterable[str]) -> None:
        self._exact: dict[str, list[str]] = {}
        self._roots: dict[str, list[str]] = {}
        for lexeme in lexemes:
            plain = strip_accents(lexeme)
            self._exact.setdefault(plain, []).append(lexeme)
            self._roots.setdefault(plain.removesuffix("i"), []).append(lexeme)

    def find(self, word: str) -> str | None:
        """The longest lexeme that `word` is equal to or, accents aside, begins with (a final `i` may have been a `y`) without being much longer."""
        folded_word = strip_accents(word.lower())
        lengths = range(max(MIN_ROOT_LETTERS, len(folded_word) - MAX_ENDING_LETTERS), len(folded_word) + 1)
        matching_lexemes = [*self._exact.get(folded_word, ()), *(lexeme for length in lengths for lexeme in self._roots.get(folded_word[:length], ()))]
        return max(matching_lexemes, key=len, default=None)


@lru_cache(maxsize=16384)
def stem_word(word: str) -> str:
    """What forms of a word mostly share: no accents, no plural s, no final vowel, six letters at most."""
    stem = strip_accents(word.lower())
    stem = stem[:-1] if len(stem) > 3 and stem.endswith("s") else stem
    stem = stem[:-1] if len(stem) > 4 and stem[-1] in "aeiouy" else stem
    return stem if stem.isdigit() else stem[:6]
