"""Split texts into words, recognize function words, which carry no topic, and translate words.

So a question is compared word by word with a text in another language, and with synonyms in its
own. The states of a word and of its translation are about as close as those of related words of one
language, so they alone do not tell that a lease speaks of rent and not of a deposit. A dictionary
does. `translations.txt` covers English and Portuguese, the languages of the local embedder: each
line holds words of one meaning, `english words|portuguese words`. Words are compared by the keys of
`stem_word`, so that only irregular forms need an entry.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import islice

import yaml

# Assumed bounds of what a stemmer keeps and removes; they limit the lexemes to compare.
MIN_ROOT_LETTERS, MAX_ENDING_LETTERS = 3, 7
# Shorter beginnings are shared by chance.
_MIN_FORM_LETTERS = 4
_WORD = re.compile(r"\w+(?:['’]\w+)?")
# Scripts without spaces between words: Chinese, Japanese, Thai, Lao, Khmer and Burmese.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_UNSPACED_RUN = re.compile(rf"[{_UNSPACED}]+|[^{_UNSPACED}]+")
# Typeset signs as they are typed. A soft hyphen is a place to break the line, and no sign.
_SIGNS = str.maketrans(
    dict.fromkeys((*range(0x2010, 0x2016), 0x2212, 0xFE63, 0xFF0D), "-")
    | dict.fromkeys((0x2018, 0x2019, 0x02BC, 0xFF07), "'")
    | {0x00D7: "x"}
    | dict.fromkeys((0x00AD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF), None)
)
# 10⁶ is not 106, but m² is m2.
_POWER = re.compile(r"(?<=\d)(?=[⁰¹²³⁴⁵⁶⁷⁸⁹⁻])")
# Possessive endings and elided articles: Maria's, l'hôtel, d'Oeste.
_AFFIX = re.compile(r"^(?:[a-z]|qu)'(?=\w{2})|'s?$")

FUNCTION_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(listed.split())
    for language, listed in yaml.safe_load(
        (files("retrieval.question") / "function_words.yaml").read_text(encoding="utf-8")
    ).items()
}
# Includes words that are topical in another language ("die", "es", "no"): a query has enough other
# words.
_ALL_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())
MONTHS: Mapping[str, int] = {
    name: number
    for number, names in enumerate(
        (
            "january janeiro enero janvier januar", "february fevereiro febrero fevrier februar",
            "march marco marzo mars marz", "april abril avril", "may maio mayo mai",
            "june junho junio juin juni", "july julho julio juillet juli",
            "august agosto aout", "september setembro septiembre septembre",
            "october outubro octubre octobre oktober",
            "november novembro noviembre novembre", "december dezembro diciembre decembre dezember",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
"""Numbers of the months by their names in lower case, without accents."""
NUMERALS: Mapping[str, int] = {
    word: value
    for value, words in {
        1: "one um uma once", 2: "two dois duas dos deux zwei twice", 3: "three tres trois drei",
        4: "four quatro cuatro quatre vier", 5: "five cinco cinq funf", 6: "six seis sechs",
        7: "seven sete siete sept sieben", 8: "eight oito ocho huit acht",
        9: "nine nove nueve neuf neun", 10: "ten dez diez dix zehn", 11: "eleven onze elf",
        12: "twelve doze doce douze zwolf", 13: "thirteen treze", 14: "fourteen catorze quatorze",
        15: "fifteen quinze", 16: "sixteen dezasseis dezesseis",
        17: "seventeen dezassete dezessete", 18: "eighteen dezoito",
        19: "nineteen dezanove dezenove",
        20: "twenty vinte veinte vingt zwanzig",
        30: "thirty trinta treinta trente dreißig", 40: "forty quarenta", 50: "fifty cinquenta",
        60: "sixty sessenta", 70: "seventy setenta", 80: "eighty oitenta", 90: "ninety noventa",
        100: "hundred", 1000: "thousand",
    }.items()
    for word in words.split()
}  # fmt: skip
"""Values of spelled-out numbers by their words in lower case, without accents."""
# "once" and "um" count nothing by themselves, and "hundred" multiplies what stands before it.
_NUMBER_KEYS: Mapping[str, str] = {
    word: str(value)
    for word, value in NUMERALS.items()
    if value < 100 and word not in ("um", "uma", "once", "twice", "dos")
}


def fold_signs(text: str) -> str:
    """Return the text with typed dashes and apostrophes, without soft hyphens."""
    return text if text.isascii() else _POWER.sub("^", text.translate(_SIGNS))


_STRUCK = re.compile(r"~~(?=\S)(?:(?!~~).)+~~", re.DOTALL)


def blank_struck(text: str) -> str:
    """Return the text with blanks in place of struck parts, which are no longer valid."""
    return _STRUCK.sub(lambda match: " " * len(match.group()), text) if "~~" in text else text


def split_words(text: str) -> list[str]:
    """Return lower-case words in order, numbers included.

    Scripts without spaces are cut into pairs of characters, which most of their words consist of.
    """
    return [word.lower() for word in _find_raw_words(text)]


def _find_raw_words(text: str) -> list[str]:
    words: list[str] = _WORD.findall(fold_signs(text))
    if text.isascii():
        return words
    return [part for word in words for part in _cut_unspaced(word)]


def _cut_unspaced(word: str) -> list[str]:
    if not is_unspaced(word):
        return [word]
    return [
        pair
        for run in _UNSPACED_RUN.findall(word)
        for pair in (
            [run[start : start + 2] for start in range(max(1, len(run) - 1))]
            if is_unspaced(run)
            else [run]
        )
    ]


def is_unspaced(text: str) -> bool:
    """Tell whether the text has characters of a script without spaces between words."""
    return not text.isascii() and _UNSPACED_CHARACTER.search(text) is not None


def find_words(text: str) -> list[tuple[str, int, int]]:
    """Return lower-case words in order, with the characters [start, end) of each."""
    return [(match.group().lower(), *match.span()) for match in _WORD.finditer(text)]


def is_function_word(word: str) -> bool:
    """Tell whether any of the languages has this function word."""
    return word.lower() in _ALL_FUNCTION_WORDS


def extract_content_words(text: str, language: str | None = None) -> list[str]:
    """Return topical words in order. Without a language, function words of all five languages are
    removed.
    """
    stop_words = FUNCTION_WORDS.get(language or "", _ALL_FUNCTION_WORDS)
    has_cases = not text.isupper()
    return [
        word.lower()
        for word in _find_raw_words(text)
        # "WHO" in a text with small letters is an acronym.
        if (word.lower() not in stop_words or (has_cases and word.isupper()))
        and (len(word) > 1 or word.isdigit())
    ]


def strip_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(
        char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char)
    )


def guess_language(text: str, min_lead: int = 2) -> str | None:
    """Return the language with the most function words in the text, when ahead by at least
    `min_lead`; else None.
    """
    text_words = split_words(text)
    votes = sorted(
        (
            (sum(word in stop_words for word in text_words), language)
            for language, stop_words in FUNCTION_WORDS.items()
        ),
        reverse=True,
    )
    (best, language), (second, _) = votes[:2]
    return language if best - second >= min_lead else None


def truncate_to_content_words(text: str, max_words: int, language: str | None = None) -> str:
    """Cut `text` before content word number `max_words` + 1."""
    stop_words = FUNCTION_WORDS.get(language or "", _ALL_FUNCTION_WORDS)
    content_matches = (
        match for match in _WORD.finditer(text) if match.group().lower() not in stop_words
    )
    first_excess = next(islice(content_matches, max_words, None), None)
    return text[: first_excess.start()].rstrip() if first_excess else text


class LexemeIndex:
    """Lexemes by the prefixes that a stemmer could have produced.

    Each word is compared with a handful of them.
    """

    def __init__(self, lexemes: Iterable[str]) -> None:
        self._exact: dict[str, list[str]] = {}
        self._roots: dict[str, list[str]] = {}
        for lexeme in lexemes:
            plain = strip_accents(lexeme)
            self._exact.setdefault(plain, []).append(lexeme)
            self._roots.setdefault(plain.removesuffix("i"), []).append(lexeme)

    def find(self, word: str) -> str | None:
        """Return the longest lexeme that `word` could have been stemmed to.

        Accents are ignored, and a final `i` of the lexeme may have been a `y`.
        """
        folded_word = strip_accents(word.lower())
        lengths = range(
            max(MIN_ROOT_LETTERS, len(folded_word) - MAX_ENDING_LETTERS), len(folded_word) + 1
        )
        matching_lexemes = [
            *self._exact.get(folded_word, ()),
            *(lexeme for length in lengths for lexeme in self._roots.get(folded_word[:length], ())),
        ]
        return max(matching_lexemes, key=len, default=None)


@lru_cache(maxsize=16384)
def stem_word(word: str) -> str:
    """Reduce a word to a key that most of its forms share: no accents, plural s or final vowel.

    At most six letters. A number has the key of its digits: "three" that of "3".
    """
    stem = _AFFIX.sub("", strip_accents(fold_signs(word.lower())))
    if number := _NUMBER_KEYS.get(stem):
        return number
    stem = stem[:-1] if len(stem) > 3 and stem.endswith("s") else stem
    stem = stem[:-1] if len(stem) > 4 and stem[-1] in "aeiouy" else stem
    # Numbers may differ in any digit, so they are never cut.
    return stem if stem.isdigit() else stem[:6]


def holds_form(keys: Collection[str], key: str) -> bool:
    """Tell whether the keys hold this one, or that of another form or of a longer word made from
    it: "flashing" for "flashes", "Garantiezeit" for "Garantie".
    """
    return key in keys or any(
        min(len(key), len(other)) >= _MIN_FORM_LETTERS
        and (key.startswith(other) or other.startswith(key))
        for other in keys
    )


def extract_stems(text: str) -> set[str]:
    """Return the keys of the text's topical words."""
    return {stem_word(word) for word in extract_content_words(text)}


def extract_word_keys(text: str) -> set[str]:
    """Return the keys of the text's topical words, and of the months of its dates in digits."""
    return extract_stems(text) | find_month_keys(text)


# Dates in digits, as spreadsheets hold them; the month of 05/04/2026 is in doubt.
_NUMERIC_DATE = re.compile(
    r"(?<![\w-])(?:(?:1[5-9]|20)\d\d-(0[1-9]|1[0-2])(?:-[0-3]\d)?(?=t\d|(?![\w-]))"
    r"|[0-3]?\d\.(0?[1-9]|1[0-2])\.(?:1[5-9]|20)\d\d(?!\w))",
    re.I,
)
_MONTH_KEYS = {
    number: [stem_word(name) for name in MONTHS if MONTHS[name] == number]
    for number in range(1, 13)
}


def find_month_keys(text: str) -> set[str]:
    """Return the keys of the names of the months that dates in digits name: July of 2025-07."""
    return {
        key
        for iso_month, dotted_month in _NUMERIC_DATE.findall(text)
        for key in _MONTH_KEYS[int(iso_month or dotted_month)]
    }


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
