"""Numbers in words: "four hundred and fifty", "quatrocentos e cinquenta", "vierhundertfünfzig"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from retrieval.question.words import strip_accents

_LANGUAGES = ("en", "pt", "es", "fr", "de")
# Values of the words of each language, in the order above.
_LISTED: Mapping[int, tuple[str, str, str, str, str]] = {
    1: ("one", "um uma", "un una uno", "un une", "ein eins eine"),
    2: ("two", "dois duas", "dos", "deux", "zwei"),
    3: ("three", "tres", "tres", "trois", "drei"),
    4: ("four", "quatro", "cuatro", "quatre", "vier"),
    5: ("five", "cinco", "cinco", "cinq", "funf"),
    6: ("six", "seis", "seis", "six", "sechs"),
    7: ("seven", "sete", "siete", "sept", "sieben"),
    8: ("eight", "oito", "ocho", "huit", "acht"),
    9: ("nine", "nove", "nueve", "neuf", "neun"),
    10: ("ten", "dez", "diez", "dix", "zehn"),
    11: ("eleven", "onze", "once", "onze", "elf"),
    12: ("twelve", "doze", "doce", "douze", "zwolf"),
    13: ("thirteen", "treze", "trece", "treize", "dreizehn"),
    14: ("fourteen", "catorze quatorze", "catorce", "quatorze", "vierzehn"),
    15: ("fifteen", "quinze", "quince", "quinze", "funfzehn"),
    16: ("sixteen", "dezasseis dezesseis", "dieciseis", "seize", "sechzehn"),
    17: ("seventeen", "dezassete dezessete", "diecisiete", "", "siebzehn"),
    18: ("eighteen", "dezoito", "dieciocho", "", "achtzehn"),
    19: ("nineteen", "dezanove dezenove", "diecinueve", "", "neunzehn"),
    20: ("twenty", "vinte", "veinte", "vingt vingts", "zwanzig"),
    30: ("thirty", "trinta", "treinta", "trente", "dreissig dreißig"),
    40: ("forty", "quarenta", "cuarenta", "quarante", "vierzig"),
    50: ("fifty", "cinquenta", "cincuenta", "cinquante", "funfzig"),
    60: ("sixty", "sessenta", "sesenta", "soixante", "sechzig"),
    70: ("seventy", "setenta", "setenta", "septante", "siebzig"),
    80: ("eighty", "oitenta", "ochenta", "huitante", "achtzig"),
    90: ("ninety", "noventa", "noventa", "nonante", "neunzig"),
    100: ("hundred", "cem cento", "cien ciento", "cent cents", "hundert"),
    200: ("", "duzentos duzentas", "doscientos doscientas", "", ""),
    300: ("", "trezentos trezentas", "trescientos trescientas", "", ""),
    400: ("", "quatrocentos quatrocentas", "cuatrocientos cuatrocientas", "", ""),
    500: ("", "quinhentos quinhentas", "quinientos quinientas", "", ""),
    600: ("", "seiscentos seiscentas", "seiscientos seiscientas", "", ""),
    700: ("", "setecentos setecentas", "setecientos setecientas", "", ""),
    800: ("", "oitocentos oitocentas", "ochocientos ochocientas", "", ""),
    900: ("", "novecentos novecentas", "novecientos novecientas", "", ""),
    1000: ("thousand", "mil", "mil", "mille", "tausend"),
    10**6: (
        "million", "milhao milhoes", "millon millones", "million millions", "million millionen",
    ),
}  # fmt: skip
_VALUES: Mapping[str, Mapping[str, int]] = {
    language: {word: value for value, listed in _LISTED.items() for word in listed[i].split()}
    | (
        {f"veinti{unit}": 20 + value for value, unit in enumerate(
            ["un", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve"], 1)}
        | {"veintiuno": 21, "veintiuna": 21}
        if language == "es" else {}
    )
    for i, language in enumerate(_LANGUAGES)
}  # fmt: skip
_CONNECTORS: Mapping[str, str] = {"en": "and", "pt": "e", "es": "y", "fr": "et", "de": "und"}
_WORD = re.compile(r"[^\W\d_]+")
_GERMAN_UNIT_AND_TEN = re.compile(r"([a-z]{3,7})und([a-zß]{5,8})")
_HUNDRED, _THOUSAND = 100, 1000


@dataclass(frozen=True, slots=True)
class SpelledNumber:
    """A number of more than one word, or of a compound word, at `[start, end)` of its text."""

    value: int
    start: int
    end: int


class _Builder:
    """Adds words as long as they make one number: "three and four" are two."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._total = self._current = 0
        self._scale = 10**9
        self.words = 0

    @property
    def value(self) -> int:
        return self._total + self._current

    def add(self, value: int, connector: str) -> bool:
        """Add a word if it can follow, `connector` being what stands before it."""
        if self.words and not self._can_join(value, connector):
            return False
        rest = self._current % _HUNDRED
        if value >= _THOUSAND:
            if (self.words and not self._current) or value >= self._scale:
                return False
            self._total += max(self._current, 1) * value
            self._current, self._scale = 0, value
        elif value == _HUNDRED and self._multiplies_hundred():
            self._current *= _HUNDRED
        elif value >= _HUNDRED:
            if self._current:
                return False
            self._current = value
        elif self._language == "fr" and value == 20 and self._current % _HUNDRED == 4:
            self._current += 76
        elif (
            rest == 0
            or (value < 10 and rest >= 20 and rest % 10 == 0)
            or (self._language == "fr" and value < 20 and rest in (60, 80))
        ):
            self._current += value
        else:
            return False
        self.words += 1
        return True

    def _multiplies_hundred(self) -> bool:
        return self._language in ("en", "fr", "de") and 0 < self._current < _HUNDRED

    def _can_join(self, value: int, connector: str) -> bool:
        rest = self._current % _HUNDRED
        if connector == "-":
            return value < _HUNDRED and (rest >= 20 or self._language == "fr")
        if connector and self._language in ("en", "de"):
            return rest == 0 and value < _HUNDRED
        return not connector or value < _THOUSAND


def find_spelled_numbers(text: str) -> list[SpelledNumber]:
    """Return the numbers in words, but for those that one simple word says."""
    words = [(_fold(match.group()), *match.span()) for match in _WORD.finditer(text)]
    found: list[SpelledNumber] = []
    i = 0
    while i < len(words):
        number, length = _read_longest(text, words[i:]) if _may_start(words[i][0]) else (None, 1)
        if number is not None:
            found.append(number)
        i += length
    return found


@lru_cache(maxsize=16384)
def _may_start(word: str) -> bool:
    return any(_get_value(word, language) is not None for language in _LANGUAGES)


def _read_longest(
    text: str, words: Sequence[tuple[str, int, int]]
) -> tuple[SpelledNumber | None, int]:
    best: tuple[SpelledNumber | None, int] = None, 1
    for language in _LANGUAGES:
        builder = _Builder(language)
        number, length = _read_number(text, words, language, builder)
        is_compound = number is not None and (
            builder.words > 1 or (number.value > 20 and words[0][0] not in _SIMPLE_WORDS)
        )
        if is_compound and length > (best[1] if best[0] else 0):
            best = number, length
    return best


# What counts by itself or multiplies: "hundred" alone is no 100.
_SIMPLE_WORDS = frozenset(
    word
    for value, listed in _LISTED.items()
    if value <= _HUNDRED or value >= _THOUSAND
    for words in listed
    for word in words.split()
)


def _read_number(
    text: str, words: Sequence[tuple[str, int, int]], language: str, builder: _Builder
) -> tuple[SpelledNumber | None, int]:
    end_word = -1
    i = 0
    while i < len(words):
        connector = ""
        j = i
        if i:
            gap = text[words[i - 1][2] : words[i][1]]
            if gap not in (" ", "-", "\u00a0"):
                break
            connector = "-" if gap == "-" else ""
            if words[i][0] == _CONNECTORS[language] and i + 1 < len(words):
                if text[words[i][2] : words[i + 1][1]] not in (" ", "-"):
                    break
                connector, j = "and", i + 1
        value = _get_value(words[j][0], language)
        # In "twenty five-litre cans" there are twenty.
        is_cut = bool(re.match(r"-\w", text[words[j][2] : words[j][2] + 2])) and not (
            j + 1 < len(words)
            and text[words[j][2] : words[j + 1][1]] == "-"
            and _get_value(words[j + 1][0], language) is not None
        )
        if value is None or (is_cut and connector != "-") or not builder.add(value, connector):
            break
        end_word, i = j, j + 1
    if end_word < 0:
        return None, 1
    return SpelledNumber(builder.value, words[0][1], words[end_word][2]), end_word + 1


def _get_value(word: str, language: str) -> int | None:
    value = _VALUES[language].get(word)
    return _read_german(word) if value is None and language == "de" else value


@lru_cache(maxsize=4096)
def _read_german(word: str) -> int | None:
    """Return the value of a compound: "zweitausenddreihundertfünfundzwanzig"."""
    if word in _VALUES["de"]:
        return _VALUES["de"][word]
    for unit, factor in (("tausend", _THOUSAND), ("hundert", _HUNDRED)):
        if unit in word:
            left, _, right = word.partition(unit)
            multiplier = _read_german(left) if left else 1
            rest = _read_german(right.removeprefix("und")) if right else 0
            if multiplier is None or rest is None or rest >= factor:
                return None
            return multiplier * factor + rest
    if match := _GERMAN_UNIT_AND_TEN.fullmatch(word):
        units, tens = (_VALUES["de"].get(part) for part in match.groups())
        if units is not None and tens is not None and units < 10 and 20 <= tens < _HUNDRED:
            return tens + units
    return None


def _fold(word: str) -> str:
    return strip_accents(word.lower())
