"""Plan a query by rules: language, keywords, candidate entity names and the route to channels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from retrieval.document_links import NameSpan, find_name_spans
from retrieval.words import (
    extract_content_words,
    guess_language,
    guess_likelier_language,
    split_words,
    truncate_to_content_words,
)
from schemas.channels import CHANNEL_DECLARATIONS, CHANNELS, Channel
from schemas.ports.engines import LanguageDetector, NameNormalizer
from schemas.profiles import Profile
from schemas.questions import Route, SearchRequest

# Content words that count; the text after the last of them is ignored.
MAX_CONTENT_WORDS = 64
# Longest name that is matched without capitals or quotes, in words.
MAX_NAME_WORDS = 4
_MAX_NAME_CANDIDATE_WORDS = 64
_QUOTED = re.compile('["“”„«»]([^"“”„«»]{2,120})["“”„«»]')
_JOINERS = "of|the|de|da|do|das|dos|del|la|van|von|der|&"
# The class excludes non-letters, digits, `_` and lower case, which leaves upper-case letters.
_NAME_WORD = r"[^\W\d_a-zà-öø-ÿ][\w'’.&-]*"
_CAPITALISED = re.compile(rf"(?<!\w){_NAME_WORD}(?:[ ](?:(?:{_JOINERS})[ ])?{_NAME_WORD})*")


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The analyzed query.

    `names` maps normalized candidate entity names to their weight: 1 when written as a name, less
    otherwise.
    """

    question: str
    language: str | None
    language_sure: bool
    keywords: tuple[str, ...]
    written_names: tuple[str, ...]
    names: dict[str, float]
    document_names: tuple[NameSpan, ...] = ()

    @property
    def has_topic(self) -> bool:
        """False for function words alone ("What is it?").

        Capitalized ones ("the WHO") count as a topic, unless every word is capitalized.
        """
        return bool(self.keywords) or (
            bool(self.written_names) and not (self.question.istitle() or self.question.isupper())
        )

    def is_foreign(self, language: str | None) -> bool:
        """Tell whether a text's language surely differs from the query's, regions aside."""
        return (
            self.language_sure and language is not None and language.split("-")[0] != self.language
        )


def plan_query(
    question: str,
    requested_language: str | None,
    languages: LanguageDetector,
    names: NameNormalizer,
) -> QueryPlan:
    language, is_sure = detect_question_language(question, requested_language, languages)
    # Bounds the cost of every later step when a whole page is pasted as a question.
    question = truncate_to_content_words(question, MAX_CONTENT_WORDS, language)
    written_keys = tuple(dict.fromkeys(find_written_names(question)))
    return QueryPlan(
        question,
        language,
        is_sure,
        tuple(dict.fromkeys(extract_content_words(question, language))),
        written_keys,
        weigh_name_keys(question, written_keys, names),
        tuple(find_name_spans(question)),
    )


def narrow_question(plan: QueryPlan, question: str) -> QueryPlan:
    """Return the plan for a part of its question; language and entity names stay those of all."""
    return replace(
        plan,
        question=question,
        keywords=tuple(dict.fromkeys(extract_content_words(question, plan.language))),
    )


def detect_question_language(
    question: str, requested: str | None, languages: LanguageDetector
) -> tuple[str | None, bool]:
    """Return the language, and whether it is certain.

    Certain: requested, or clearly indicated by function words. Detectors err on short queries.
    """
    if requested:
        return requested.lower().split("-")[0], True
    guessed_language = guess_language(question)
    return (
        (guessed_language, True)
        if guessed_language
        else (languages.detect(question) or guess_likelier_language(question), False)
    )


def find_written_names(question: str) -> Iterator[str]:
    """Yield spans written as names: quoted, or capitalized.

    A first word needs another capitalized word after it.
    """
    yield from (match.group(1).strip() for match in _QUOTED.finditer(question))
    for match in _CAPITALISED.finditer(question):
        name = match.group().rstrip(".'’-&")
        # A sentence's first word is always capitalized, which alone marks no name.
        if match.start() == 0 and " " not in name:
            continue
        yield name
        # "Does Acme Corp …": the first word may not belong to the name.
        if match.start() == 0:
            yield name.split(" ", 1)[1]


def weigh_name_keys(
    question: str, written: tuple[str, ...], names: NameNormalizer
) -> dict[str, float]:
    """Return weights by normalized name.

    Written names weigh 1, phrases of two to four words 0.8, single content words 0.5.
    """
    keys: dict[str, float] = {}
    for name in written:
        _raise_weight(keys, names.normalize(name), 1.0)
    question_words = split_words(question)[:_MAX_NAME_CANDIDATE_WORDS]
    topic_words = set(extract_content_words(question))
    for length in range(MAX_NAME_WORDS, 0, -1):
        for start in range(len(question_words) - length + 1):
            name_words = question_words[start : start + length]
            if (
                name_words[0] in topic_words
                and name_words[-1] in topic_words
                # Single words of up to three letters would link to unrelated entities.
                and (length > 1 or len(name_words[0]) > 3)
            ):
                _raise_weight(
                    keys, names.normalize(" ".join(name_words)), 0.5 if length == 1 else 0.8
                )
    return keys


def _raise_weight(keys: dict[str, float], key: str, weight: float) -> None:
    if key:
        keys[key] = max(weight, keys.get(key, 0.0))


_RELATIONAL_QUESTION = re.compile(
    r"\b(relation(?:ship)?s? between|connect(?:ion|ed|s) (?:between|to|with)|linked (?:to|with)"
    r"|rela[cç][aãoõ]\w* entre|ligad[oa]s? a|relaci[oó]n entre|lien entre|beziehung zwischen)\b",
    re.IGNORECASE,
)


def choose_route(request: SearchRequest, plan: QueryPlan) -> Route:
    """Choose the route by the request's mode, or by rules when the mode is `auto`.

    Two names and a relational phrase go to the graph alone; everything else goes to all channels.
    """
    if request.mode != "auto":
        return Route(
            mode=request.mode, decided_by="request", reason=f"the request sets mode {request.mode}"
        )
    if _RELATIONAL_QUESTION.search(plan.question) and len(plan.written_names) >= 2:
        return Route(
            mode="graph",
            decided_by="rules",
            reason=f"relation between {plan.written_names[0]} and {plan.written_names[1]}",
        )
    return Route(mode="hybrid", decided_by="rules", reason="no rule selects a single mode")


def choose_channels(
    chosen_route: Route, request: SearchRequest, profile: Profile
) -> tuple[Channel, ...]:
    """Return the requested channels, or those of the mode, without channels that the profile
    disables.
    """
    requested = request.channels or [
        channel.name
        for channel in CHANNEL_DECLARATIONS
        if chosen_route.mode in (channel.mode, "hybrid")
    ]
    return tuple(
        channel
        for channel in CHANNELS
        if channel in requested and profile.get_channel(channel).enabled
    )


def escalate_route(chosen_route: Route, reason: str) -> Route | None:
    """Return the route to all channels when a rule, not the request, had chosen fewer; otherwise
    None.
    """
    if chosen_route.decided_by == "request" or chosen_route.mode == "hybrid":
        return None
    return Route(mode="hybrid", decided_by="rules", reason=reason, escalated_from=chosen_route.mode)
