"""Translate words, so that a question is compared word by word with a text in another language, and
find synonyms in its own.

The states of a word and of its translation are about as close as those of related words of one
language, so they alone do not tell that a lease speaks of rent and not of a deposit. A dictionary
does. `translations.txt` covers English and Portuguese, the languages of the local embedder: each
line holds words of one meaning, `english words|portuguese words`. Words are compared by the keys of
`stem_word`, so that only irregular forms need an entry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from importlib.resources import files

from retrieval.question.words import FUNCTION_WORDS, stem_word

_LANGUAGES = ("en", "pt")
# Endings that replace those of a listed word in its regular forms. A noun gets those of a verb too,
# which no word has.
_ENDINGS: Mapping[str, Mapping[str, str]] = {
    "en": {"y": "ies ied", "e": "ed ing", "": "ed ing"},
    "pt": {
        "ar": "a am o ou e em ei ado ando ava avam aram amos",
        "er": "e em o eu ido endo ia iam eram emos",
        "ir": "e em o iu ido indo ia iam iram imos",
        "ão": "ões",
        "al": "ais",
        "el": "eis",
        "il": "is",
        "ol": "óis",
        "m": "ns",
    },
}

Dictionary = Mapping[str, frozenset[str]]
"""Keys of the equivalents by the keys of a word and of its regular forms."""
_NONE: frozenset[str] = frozenset()


def match_words(
    words: Iterable[str], source: str | None, target: str | None, text_keys: Collection[str]
) -> list[bool | None]:
    """Tell of each word whether a text, given the keys of its words, holds it or its translation.

    None for a word of another language that the text does not hold and the dictionary does not
    have, such as a name.
    """
    is_own_language = _get_base(source) == _get_base(target)
    matches: list[bool | None] = []
    for word in words:
        if (is_held := stem_word(word) in text_keys) or is_own_language:
            matches.append(is_held)
        else:
            translations = find_equivalents(word, source, target)
            matches.append(not translations.isdisjoint(text_keys) if translations else None)
    return matches


def match_synonyms(
    words: Iterable[str], source: str | None, target: str | None, text_keys: Collection[str]
) -> list[bool | None]:
    """Tell of each word whether a text of its language lacks it and holds a synonym of it."""
    if _get_base(source) != _get_base(target):
        return [False for _ in words]
    return [
        stem_word(word) not in text_keys
        and not find_equivalents(word, source, target).isdisjoint(text_keys)
        for word in words
    ]


def find_equivalents(word: str, source: str | None, target: str | None) -> frozenset[str]:
    """Return the keys of the word's translations; for a text of its own language, of the word and
    its synonyms.

    Both if the language of the text is unknown, and none if the dictionary does not have the word.
    """
    targets = [_get_base(target)] if target else _LANGUAGES
    return _NONE.union(
        *(_load_dictionary(_get_base(source), to).get(stem_word(word), _NONE) for to in targets)
    )


def guess_by_dictionary(words: Iterable[str]) -> str | None:
    """Return the language that alone has more of the words than the other has alone."""
    keys = set(map(stem_word, words))
    english, portuguese = (
        keys & _load_dictionary(language, language).keys() for language in _LANGUAGES
    )
    lead = len(english - portuguese) - len(portuguese - english)
    return _LANGUAGES[lead < 0] if lead else None


def _list_keys(word: str, language: str) -> set[str]:
    """Return the keys of a listed word and of its regular forms."""
    return {stem_word(word)} | {
        stem_word(word.removesuffix(ending) + other)
        for ending, others in _ENDINGS[language].items()
        if word.endswith(ending)
        for other in others.split()
    }


def _get_base(language: str | None) -> str:
    return (language or "").partition("-")[0]


@lru_cache(maxsize=1)
def read_dictionary() -> str:
    """Return the text of the dictionary, a group of equivalent words on each line."""
    return (files("retrieval.question") / "translations.txt").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _read_groups() -> list[dict[str, set[str]]]:
    """Return the keys of each line's words and of their regular forms, by language."""
    return [
        {
            language: set().union(*(_list_keys(word, language) for word in side.split()))
            for language, side in zip(_LANGUAGES, line.split("|"), strict=True)
        }
        for line in read_dictionary().splitlines()
    ]


# Bounded: the language comes from the request.
@lru_cache(maxsize=64)
def _load_dictionary(source: str, target: str) -> Dictionary:
    """Return the equivalents in the target language, synonyms if it is the source; empty without
    words of both.
    """
    if not {source, target}.issubset(_LANGUAGES):
        return {}
    entries: dict[str, set[str]] = defaultdict(set)
    # "Depo", a form of "depor", is the key of "depois".
    function_keys = set(map(stem_word, FUNCTION_WORDS[target]))
    for group in _read_groups():
        for key in group[source]:
            entries[key] |= group[target] - function_keys
    return {key: frozenset(equivalents) for key, equivalents in entries.items()}
