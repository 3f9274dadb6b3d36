"""Find the attribute that a question asks for, and tell whether the evidence speaks of it.

"What is the parental leave?" asks for parental leave; a page on annual leave is close in meaning,
holds half of the words, and does not answer. The attribute is supported by forms of its words, or
by token states close to theirs. It is judged only beside a word of the question that the best
sentence does hold: a paraphrase shares no word with its answer, and is left to the estimated
probability.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from retrieval.answering.evidence import Evidence, Similarities, list_unit_texts
from retrieval.question.quantities import UNIT_NAMES
from retrieval.question.query_plan import QueryPlan
from retrieval.question.translation import match_synonyms
from retrieval.question.words import (
    holds_form,
    is_function_word,
    split_words,
    stem_word,
)

# Not settings: similarities after subtracting the mean of the states. Of 250 right answers, .01 had
# an attribute below the first, and words that a sentence holds are above the second.
MIN_SIMILARITY = 0.48
_MIN_ANCHOR_SIMILARITY = 0.7
# Other words for a participle have .42 and more, unrelated ones up to .40.
_MIN_PREDICATE_SIMILARITY = 0.41
_MAX_WORDS = 3

Place = tuple[int, int]


_ARTICLE = r"(?:(?:the|an?|its|their|our|your|his|her)\s+)?"
# Beginnings of questions by language. The attribute follows a form of "to be" ("what is the …") in
# these, and the question word itself in those of `_DIRECT` ("which vendor made the disk").
_COPULAR: Mapping[str, re.Pattern[str]] = {
    "en": re.compile(
        rf"\b(?:what|which|who)\s+(?:is|are|was|were|will\s+be)\s+{_ARTICLE}(?=\w)"
        r"|\b(?:is|are|was|were)\s+there\s+(?:(?:an?|any)\s+)?(?=\w)",
        re.I,
    ),
    "pt": re.compile(
        r"\b(?:qual|quais|quem)\s+(?:é|era|foi|são|eram|foram|será)\s+(?:[oa]s?\s+)?(?=\w)", re.I
    ),
    "es": re.compile(
        r"\b(?:cuál|cuáles|quién|quiénes)\s+(?:es|era|fue|son|eran|fueron)\s+"
        r"(?:(?:el|la|los|las)\s+)?(?=\w)",
        re.I,
    ),
    "fr": re.compile(
        r"\b(?:quel(?:le)?s?|qui)\s+(?:est|était|sont|étaient|fut)\s+(?:(?:le|la|les)\s+|l['’])?"
        r"(?=\w)",
        re.I,
    ),
}
_DIRECT: Mapping[str, re.Pattern[str]] = {
    "en": re.compile(r"\b(?:what|which|how\s+(?:many|much))\s+(?=\w)", re.I),
    "pt": re.compile(r"\b(?:quant[oa]s|(?<!o )que|qual|quais)\s+(?=\w)", re.I),
    "es": re.compile(r"\b(?:cuánt[oa]s|(?<!lo )qué)\s+(?=\w)", re.I),
    "fr": re.compile(r"\b(?:combien\s+d(?:e\s+|['’])|quel(?:le)?s?\s+)(?=\w)", re.I),
}
# At the beginning, the verb of "who funded the trial" is the attribute; elsewhere, "who" begins a
# clause. German mostly has the verb at the end.
_AGENT: Mapping[str, re.Pattern[str]] = {
    "en": re.compile(r"^\W*(?:\w{1,4}\s+)?who\s+(?:(?:has|have|had)\s+)?(?=\w)", re.I),
    "pt": re.compile(r"^\W*(?:\w{1,4}\s+)?quem\s+(?:(?:foi|tem|tinha)\s+)?(?=\w)", re.I),
    "es": re.compile(r"^\W*(?:\w{1,4}\s+)?quién(?:es)?\s+(?:(?:ha|han|había)\s+)?(?=\w)", re.I),
    "fr": re.compile(r"^\W*(?:\w{1,4}\s+)?qui\s+(?:(?:a|ont|avait)\s+)?(?=\w)", re.I),
}
# "Which applicant is recommended?" asks of whom this is said, if the question says nothing else.
_PREDICATE: Mapping[str, re.Pattern[str]] = {
    language: re.compile(rf"\b(?:{verbs})\s+(?P<word>{participle})\W*$", re.I)
    for language, verbs, participle in (
        (
            "en",
            "is|are|was|were|been|be|gets?|got",
            r"\w{3,30}(?:ed|en)|sold|won|built|made|held|lost",
        ),
        ("pt", "é|são|foi|foram|será|serão|está|estão", r"\w{3,30}(?:ad|id)[oa]s?"),
        ("es", "es|son|fue|fueron|será|serán|está|están", r"\w{3,30}(?:ad|id)[oa]s?"),
        ("fr", "est|sont|était|sera|fut|été", r"\w{3,30}(?:é|i|u)e?s?"),
        (
            "de",
            "wird|werden|wurden?|ist|sind",
            r"\w{0,20}(?:ge|be|emp|ent|er|ver|zer)\w{3,20}(?:t|en)",
        ),
    )
}
_WORD = re.compile(
    r"\b(?:price|cost|fee|pay|paid|rent|charge|rate|tarif|budget|expens|free|preç|cust|pag[ao]"
    r"|taxa|renda|valor|gratuit|precio|cuesta|kost|preis|gebühr|miete|prix|coût|loyer)"
    r"|[$€£¥]|\b(?:EUR|USD|BRL|GBP|CHF)\b",
    re.I,
)
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_ANCHOR = re.compile(r"\w+(?:[-./]\w+)*")
_PARTITIVE = re.compile(r"\s+(?:of|de|d['’])\s*(?=\w)")
# Words that say how the attribute is asked for, and not which it is: the limit of the pressure is
# found as its maximum, and the vacation entitlement as days of vacation.
_GENERIC_WORDS = (
    "number amount name value kind type sort total maximum minimum average current new exact same "
    "extra main overall many much first last next usual normal actual point moment way "
    "limit level rate size period date duration length range entitlement payment "
    "número quantidade nome valor tipo máximo máxima mínimo mínima médio média atual novo nova "
    "limite nível taxa tamanho período data duração límite nivel tasa tamaño fecha duración niveau "
    "taux taille période durée grenze dauer datum größe "
    # Times, as which "in which month" takes any date.
    "time hour day week month year hora horário dia semana mês ano día mes año heure jour semaine "
    "mois an année stunde uhrzeit tag woche monat jahr "
    "principal exato cantidad nombre nuevo nueva medio media montant nom valeur genre maximal "
    "maximale moyenne nouveau nouvelle anzahl zahl wert art betrag summe menge höhe "
    # Verbs that leave the meaning to their object.
    "do does did make makes made give gives gave take takes took get gets got go goes went "
    "faz fez fazem dá deu dão vai foi deve devem pode podem hace hizo da dio va debe puede "
    "fait fit donne donna va doit peut"
)
GENERIC_KEYS = frozenset(map(stem_word, _GENERIC_WORDS.split()))
_VERB_WORDS = (
    "is are was were do does did has have had can could may must shall should will would tem têm é "
    "foi está são tinha há hay es son tiene tienen fue está est sont a ont avait était"
)
_VERBS = frozenset(_VERB_WORDS.split())


def find_attribute(question: str, language: str | None) -> list[Place]:
    """Return the places of the attribute's words, none if the form of the question does not tell
    it.
    """
    return [
        place
        for place in _find_phrase(question, language or "")
        if stem_word(question[slice(*place)]) not in GENERIC_KEYS
    ]


def _find_phrase(question: str, language: str) -> list[Place]:
    if language not in _COPULAR:
        return []
    if start := _COPULAR[language].search(question):
        words, _ = _read_phrase(question, start.end())
    elif start := _DIRECT[language].search(question):
        words, is_complete = _read_phrase(question, start.end())
        if is_complete or (words and _PARTITIVE.match(question, words[-1][1])):
            # "Which foreign branch": the noun names the attribute. Romance languages begin with it.
            words = words[-1:] if language == "en" else words[:1]
        else:
            # In "What happened at noon?" a verb follows, which is no attribute.
            words = [] if start.group().lower().startswith("what") else words[:1]
    elif start := _AGENT[language].search(question):
        words = _read_phrase(question, start.end())[0][:1]
    else:
        return []
    # Units may be abbreviated, and "weeks of parental leave" asks for parental leave.
    units = [place for place in words if stem_word(question[slice(*place)]) in UNIT_NAMES]
    if units and (partitive := _PARTITIVE.match(question, words[-1][1])):
        return _read_phrase(question, partitive.end())[0]
    return units or words


def _read_phrase(question: str, start: int) -> tuple[list[Place], bool]:
    """Return the words up to a function word, name or mark, and whether a verb or the end follows.

    Names and codes are looked for by themselves (`find_missing_terms`).
    """
    words: list[Place] = []
    position = start
    for match in _WORD.finditer(question, start):
        if question[position : match.start()].strip() or match.group()[0].isupper():
            return words, False
        if is_function_word(match.group()):
            return words, match.group().lower() in _VERBS
        if len(words) == _MAX_WORDS:
            return words, False
        words.append(match.span())
        position = match.end()
    return words, not question[position:].strip(" ?!.")


def find_predicate(question: str, language: str | None) -> Place | None:
    """Return the participle that a "which" question ends with, if it says nothing else."""
    if language is None or language not in _PREDICATE:
        return None
    is_which = language == "de" or (
        not _COPULAR[language].search(question) and _DIRECT[language].search(question) is not None
    )
    match = _PREDICATE[language].search(question) if is_which else None
    return match.span("word") if match else None


def is_said(
    predicate: Place,
    evidence: Evidence,
    similarities: Similarities,
    quoted_rows: Sequence[int],
    documents: Sequence[str],
    plan: QueryPlan,
) -> bool:
    """Tell whether the documents hold a form or a synonym of the predicate, or the quoted rows
    words that are close to it.
    """
    word = plan.question[slice(*predicate)]
    unit_texts = [text for row in quoted_rows for text in list_unit_texts(evidence.candidates[row])]
    held_keys = _collect_keys((*documents, *unit_texts))
    return (
        holds_form(held_keys, stem_word(word))
        or match_synonyms([word], plan.language, plan.language, held_keys) == [True]
        or similarities.compare_span(quoted_rows, predicate) >= _MIN_PREDICATE_SIMILARITY
    )


def is_supported(
    attribute: Sequence[Place],
    evidence: Evidence,
    similarities: Similarities,
    lead_rows: Sequence[int],
    quoted_rows: Sequence[int],
    documents: Sequence[str],
    plan: QueryPlan,
) -> bool:
    """Tell whether the evidence speaks of the attribute, or cannot be compared with it.

    `lead_rows` are those of the best sentence with its neighbors, `quoted_rows` also those of the
    others to quote, and `documents` all that was read of their documents.
    """
    candidates, question = evidence.candidates, plan.question
    lead_keys = _collect_keys(
        text
        for row in lead_rows
        for text in (candidates[row].readable_text, candidates[row].lead_in_text)
    )
    unit_texts = [text for row in quoted_rows for text in list_unit_texts(candidates[row])]
    is_anchored = any(
        not is_function_word(match.group())
        and holds_form(lead_keys, stem_word(match.group()))
        and similarities.compare_span(lead_rows, match.span()) >= _MIN_ANCHOR_SIMILARITY
        for match in _ANCHOR.finditer(question)
    )
    if not is_anchored:
        return True
    held_keys = _collect_keys((*documents, *unit_texts))
    return all(
        all(holds_form(held_keys, stem_word(part)) for part in word.split("-"))
        or similarities.compare_span(quoted_rows, place) >= MIN_SIMILARITY
        for place in attribute
        if (word := question[slice(*place)])
    )


def _collect_keys(texts: Iterable[str]) -> set[str]:
    return {stem_word(word) for text in texts for word in split_words(text)}
