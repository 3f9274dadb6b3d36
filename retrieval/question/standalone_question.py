"""Rewrite a question of a conversation so that it can be read without the turns before it.

By rules, earlier questions fill it in. Answers are not read: a document may have worded them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from retrieval.question.query_plan import find_written_names
from retrieval.question.words import extract_content_words, split_words

MAX_TOPIC_WORDS = 8
# Words after an opening that can stand for a name in the question before.
MAX_REPLACEMENT_WORDS = 5
# Without words that also open clauses, such as that, this, there, il and er.
_PRONOUNS = frozenset(
    (
        *("it", "its", "they", "them", "their", "theirs", "he", "him", "his", "she", "her", "hers"),
        *("those", "these", "ele", "eles", "ela", "elas", "dele", "deles", "dela", "delas"),
        *("nele", "neles", "nela", "nelas", "isso", "disso", "nisso", "él", "ella", "ellos"),
        *("ellas", "eso", "elle", "ils", "elles", "cela", "ça", "ihn", "ihm", "ihr", "ihre"),
        *("ihren", "ihrer", "ihrem", "davon", "dafür", "dessen", "deren"),
    )
)
_ENGLISH_POSSESSIVES = frozenset(("its", "their", "theirs", "his", "her", "hers"))
_ENGLISH_PRONOUN = re.compile(
    r"\b(?:its?|they|them|theirs?|he|him|his|she|hers?|those|these)\b", re.I
)
_OPENING = re.compile(
    r"\W*(?:(?:and|but|so|e|y|et|und|mas|pero|mais|aber)\W+)?"
    r"(?:(?:what|how) about|e quanto [aà]o?|quanto [aà]o?|qué hay de|y qué tal|qu'en est-il de"
    r"|et pour|was ist mit|wie steht es mit)\s+",
    re.I,
)


def rewrite_by_rules(earlier_questions: Iterable[str], question: str) -> str:
    """Return the question, filled in from the questions before it, the oldest first."""
    standalone = ""
    for text in (*earlier_questions, question):
        standalone = _complete(text, standalone)
    return standalone


def _complete(question: str, previous: str) -> str:
    """Return the question with what it leaves to the previous one."""
    if not previous:
        return question
    if opening := _OPENING.match(question):
        return _replace_name(previous, question[opening.end() :].strip().rstrip("?!. "))
    if _PRONOUNS.isdisjoint(split_words(question)):
        # Function words alone ("Why?", "And when?") ask about the whole previous question.
        return question if extract_content_words(question) else f"{question} ({previous})"
    topic = _find_topic(previous)
    return _replace_pronoun(question, topic) if topic else question


def _replace_name(previous: str, replacement: str) -> str:
    """Ask the previous question of something else: instead of its name, or besides its words."""
    name = next(iter(_find_names(previous)), None)
    is_name = replacement[:1].isupper() and len(replacement.split()) <= MAX_REPLACEMENT_WORDS
    if name is not None and is_name:
        return previous.replace(name, replacement, 1)
    return f"{previous.rstrip('?!. ')} {replacement}?"


def _find_topic(previous: str) -> str:
    """Return the last name of the question, or without one its first topical words."""
    names = _find_names(previous)
    return names[-1] if names else " ".join(extract_content_words(previous)[:MAX_TOPIC_WORDS])


def _find_names(question: str) -> list[str]:
    names = list(find_written_names(question))
    # The first word of a sentence is a capital in any case: "Does Acme Corp" is followed by its
    # own end, "Acme Corp".
    return [name for name in names if not any(name.endswith(f" {other}") for other in names)]


def _replace_pronoun(question: str, topic: str) -> str:
    match = _ENGLISH_PRONOUN.search(question)
    if match is None:
        return f"{question} ({topic})"
    ending = "'s" if match[0].lower() in _ENGLISH_POSSESSIVES else ""
    return f"{question[: match.start()]}{topic}{ending}{question[match.end() :]}"
