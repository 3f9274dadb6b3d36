"""Words of a text, and the function words that carry no topic."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

import yaml

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


@lru_cache(maxsize=4096)
def same_word(word: str, lexeme: str) -> bool:
    """Whether a stemmer could have made `lexeme` of `word`: accents aside, the word begins with it (a final `i` may have been a `y`) and is not much longer."""
    left, right = unaccented(word.lower()), unaccented(lexeme)
    if left == right:
        return True
    root = right.removesuffix("i")
    return len(root) >= 3 and left.startswith(root) and len(left) - len(root) <= 7


@lru_cache(maxsize=16384)
def word_key(word: str) -> str:
    """What forms of a word mostly share: no accents, no plural s, no final vowel, six letters at most."""
    bare = unaccented(word.lower())
    bare = bare[:-1] if len(bare) > 3 and bare.endswith("s") else bare
    bare = bare[:-1] if len(bare) > 4 and bare[-1] in "aeiouy" else bare
    return bare if bare.isdigit() else bare[:6]
