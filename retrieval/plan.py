"""Plan: what a question asks with, by rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from retrieval.words import content_words, first_content_words, guess_language, likelier_language, words
from schemas.ports.engines import Languages, Names

MOST_WORDS = 64
"""Content words of a question that count: what follows the last of them is not read."""
LONGEST_NAME = 4
"""Words of a name that is looked for without capitals or quotes."""
_READ_WORDS = 64
_QUOTED = re.compile('["“”„«»]([^"“”„«»]{2,120})["“”„«»]')
_JOINERS = "of|the|de|da|do|das|dos|del|la|van|von|der|&"
_NAME_WORD = r"[^\W\d_a-zà-öø-ÿ][\w'’.&-]*"
_CAPITALISED = re.compile(rf"(?<!\w){_NAME_WORD}(?:[ ](?:(?:{_JOINERS})[ ])?{_NAME_WORD})*")


@dataclass(frozen=True, slots=True)
class Plan:
    """`names` are the folded keys that may be entities, with what a match of each is worth: 1 written as a name, less for plain words."""

    question: str
    language: str | None
    language_sure: bool
    keywords: tuple[str, ...]
    written_names: tuple[str, ...]
    names: dict[str, float]

    @property
    def has_topic(self) -> bool:
        """False for function words alone ("What is it?"). Capitals make a topic of one ("the WHO") only where not every word has them."""
        return bool(self.keywords) or (bool(self.written_names) and not (self.question.istitle() or self.question.isupper()))


def plan(question: str, given_language: str | None, languages: Languages, names: Names) -> Plan:
    language, sure = question_language(question, given_language, languages)
    question = first_content_words(question, MOST_WORDS, language)
    written = tuple(dict.fromkeys(written_names(question)))
    return Plan(question, language, sure, tuple(dict.fromkeys(content_words(question, language))), written, name_keys(question, written, names))


def question_language(question: str, given: str | None, languages: Languages) -> tuple[str | None, bool]:
    """The language and whether it is sure: given or clearly told by the function words. Detected or barely told, it is not (both err on short questions)."""
    if given:
        return given.lower().split("-")[0], True
    guessed = guess_language(question)
    return (guessed, True) if guessed else (languages.detect(question) or likelier_language(question), False)


def written_names(question: str) -> Iterator[str]:
    """Spans that are written as names: quoted, or capitalised (the first word only if another capitalised one follows)."""
    yield from (match.group(1).strip() for match in _QUOTED.finditer(question))
    for match in _CAPITALISED.finditer(question):
        name = match.group().rstrip(".'’-&")
        if match.start() == 0 and " " not in name:
            continue
        yield name
        if match.start() == 0:
            yield name.split(" ", 1)[1]


def name_keys(question: str, written: tuple[str, ...], names: Names) -> dict[str, float]:
    """Folded keys: written names count 1, phrases of two to four words .8, single content words .5."""
    keys: dict[str, float] = {}
    for name in written:
        _keep(keys, names.fold(name), 1.0)
    spoken = words(question)[:_READ_WORDS]
    topical = set(content_words(question))
    for length in range(LONGEST_NAME, 0, -1):
        for start in range(len(spoken) - length + 1):
            gram = spoken[start : start + length]
            if gram[0] in topical and gram[-1] in topical and (length > 1 or len(gram[0]) > 3):
                _keep(keys, names.fold(" ".join(gram)), 0.5 if length == 1 else 0.8)
    return keys


def _keep(keys: dict[str, float], key: str, worth: float) -> None:
    if key:
        keys[key] = max(worth, keys.get(key, 0.0))
