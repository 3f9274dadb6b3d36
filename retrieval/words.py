"""Words of a text, and the function words that carry no topic."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import islice

import yaml

SHORTEST_ROOT, LONGEST_ENDING = 3, 7
_WORD = re.compile(r"\w+(?:['’]\w+)?")

FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(listed.split()) for language, listed in yaml.safe_load((files("retrieval") / "function_words.yaml").read_text(encoding="utf-8")).items()
}
_ALL_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())
# Words that are topic in one language and function in another ("die", "es", "no") stay function words: a question has enough others.


def words(text: str) -> list[str]:
    """Lower-case words in order, numbers included."""
    return [match.group().lower() for match in _WORD.finditer(text)]


def content_words(text: str, language: str | None = None) -> list[str]:
    """Words that carry the topic, in order; without a language the function words of all five count as such."""
    stop = FUNCTION_WORDS.get(language or "", _ALL_FUNCTION_WORDS)
    return [word for word in words(text) if word not in stop and (len(word) > 1 or word.isdigit())]


def unaccented(text: str) -> str:
    if text.isascii():
        return text
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))


def guess_language(text: str) -> str | None:
    """The one of five languages whose function words the text holds most of, if it is clearly ahead (two more than the next); None when unsure."""
    (best, language), (second, _) = _votes(text)
    return language if best - second >= 2 else None


def likelier_language(text: str) -> str | None:
    """The language that is ahead at all, for texts that nothing else tells."""
    (best, language), (second, _) = _votes(text)
    return language if best > second else None


def _votes(text: str) -> list[tuple[int, str]]:
    """Function words of the two likeliest languages in the text."""
    present = words(text)
    return sorted(((sum(word in stop for word in present), language) for language, stop in FUNCTION_WORDS.items()), reverse=True)[:2]


def first_content_words(text: str, most: int, language: str | None = None) -> str:
    """`text` up to the end of its content word number `most`."""
    stop = FUNCTION_WORDS.get(language or "", _ALL_FUNCTION_WORDS)
    content = (match for match in _WORD.finditer(text) if match.group().lower() not in stop)
    last = next(islice(content, most, None), None)
    return text[: last.start()].rstrip() if last else text


class LexemeIndex:
    """Lexemes by the beginnings of words that a stemmer could have made them of, so that a word is compared with a handful and not with all."""

    def __init__(self, lexemes: Iterable[str]) -> None:
        self._exact: dict[str, list[str]] = {}
        self._roots: dict[str, list[str]] = {}
        for lexeme in lexemes:
            plain = unaccented(lexeme)
            self._exact.setdefault(plain, []).append(lexeme)
            self._roots.setdefault(plain.removesuffix("i"), []).append(lexeme)

    def find(self, word: str) -> str | None:
        """The longest lexeme that `word` is equal to or, accents aside, begins with (a final `i` may have been a `y`) without being much longer."""
        left = unaccented(word.lower())
        lengths = range(max(SHORTEST_ROOT, len(left) - LONGEST_ENDING), len(left) + 1)
        found = [*self._exact.get(left, ()), *(lexeme for length in lengths for lexeme in self._roots.get(left[:length], ()))]
        return max(found, key=len, default=None)


@lru_cache(maxsize=16384)
def word_key(word: str) -> str:
    """What forms of a word mostly share: no accents, no plural s, no final vowel, six letters at most."""
    bare = unaccented(word.lower())
    bare = bare[:-1] if len(bare) > 3 and bare.endswith("s") else bare
    bare = bare[:-1] if len(bare) > 4 and bare[-1] in "aeiouy" else bare
    return bare if bare.isdigit() else bare[:6]
