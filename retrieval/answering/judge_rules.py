"""Checks of an answer by rules, each only as far as a rule can tell.

A rule finds certain faults, such as a number that no source holds. Where it cannot tell, as for an
answer in another language than its sources, it returns nothing. Toxicity and bias have no rule.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from engines.personal_identifiers import find_identifiers
from retrieval.answering.answer_drafts import compute_support
from retrieval.question.quantities import Quantity, blank_quantities, find_quantities
from retrieval.question.question_terms import find_question_terms, index_text_terms
from retrieval.question.words import extract_stems, is_function_word, split_words, stem_word
from schemas.judge_verdicts import CheckName
from schemas.values import IdentifierKind


@dataclass(frozen=True, slots=True)
class JudgedSentence:
    """A sentence of an answer. `quotes` are the texts that it cites, and `passages` what was read
    around them, with titles and sections.
    """

    text: str
    quotes: tuple[str, ...]
    passages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer to check. `is_foreign`: its sources are in another language, whose words cannot be
    compared. `has_conflict`: the answer reports that its sources disagree.
    """

    question: str
    language: str | None
    sentences: tuple[JudgedSentence, ...]
    is_foreign: bool = False
    has_conflict: bool = False
    phone_regions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join(sentence.text for sentence in self.sentences)


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The score, 1 for no fault, and what was found.

    `can_fail` is false for a rule whose low score says nothing.
    """

    score: float
    evidence: str
    can_fail: bool = True


def check_by_rule(name: CheckName, answer: JudgedAnswer) -> RuleResult | None:
    """Check the answer; None if no rule can tell."""
    return _RULES[name](answer) if name in _RULES else None


def _check_coverage(answer: JudgedAnswer) -> RuleResult:
    n_cited = sum(bool(sentence.quotes) for sentence in answer.sentences)
    n_sentences = len(answer.sentences)
    return RuleResult(
        n_cited / n_sentences if n_sentences else 0.0,
        f"{n_cited} of {n_sentences} sentences have a verified citation",
    )


def _check_groundedness(answer: JudgedAnswer) -> RuleResult | None:
    supports = {
        sentence.text: compute_support(sentence.text, [*sentence.quotes, *_list_titles(sentence)])
        for sentence in answer.sentences
    }
    worst = min(supports, key=lambda text: supports[text], default=None)
    if worst is None:
        return None
    return RuleResult(
        supports[worst],
        f"citations hold {supports[worst]:.0%} of the words of {_shorten(worst)}",
        # A quote in another language holds all words of its sentence, a translation hardly any.
        can_fail=not answer.is_foreign,
    )


def _list_titles(sentence: JudgedSentence) -> list[str]:
    # The first lines of a passage are its title and section.
    return ["\n".join(passage.split("\n")[:2]) for passage in sentence.passages]


def _check_hallucination(answer: JudgedAnswer) -> RuleResult:
    faults = [
        fault for sentence in answer.sentences for fault in _find_inventions(sentence, answer)
    ]
    return _report(faults, "numbers, units, dates and codes stand in the cited passages")


def _find_inventions(sentence: JudgedSentence, answer: JudgedAnswer) -> list[str]:
    quotes = [answer.question, *sentence.quotes]
    faults = list(_compare_values(sentence.text, quotes, answer.language))
    # Passages take longest to read, and most sentences are in their quotes.
    if not faults:
        return []
    sources = [*quotes, *sentence.passages]
    return list(_compare_values(sentence.text, sources, answer.language))


def _compare_values(sentence: str, sources: Sequence[str], language: str | None) -> Iterator[str]:
    known = [item for source in sources for item in find_quantities(source)]
    quantities = find_quantities(sentence)
    for quantity in quantities:
        text = sentence[slice(*quantity.place)]
        equal = [other for other in known if other.value == quantity.value]
        if quantity.kind == "date":
            if not _is_date_known(quantity.value, known):
                yield f"no cited passage holds {text}"
        elif not equal and not _is_written(text, sources):
            # "Three boats" may be counted; "three days" must be read.
            if text[0].isdigit() or quantity.known_unit:
                yield f"no cited passage holds {text}"
        elif equal and all(_is_other_unit(quantity, other) for other in equal):
            yield f"the cited passages hold {text} in another unit"
    # Names are not compared: a writer may capitalize or translate what is none.
    terms = find_question_terms(blank_quantities(sentence, quantities), language)
    held = index_text_terms(sources)
    codes = [code for code in terms.codes if any(map(str.isalpha, code))]
    yield from (
        f"no cited passage holds {code}"
        for code in codes
        if not held.holds_code(code) and not _is_written(code, sources)
    )


def _is_date_known(date: str, known: Sequence[Quantity]) -> bool:
    """Tell whether the sources hold the date, or its day and its year apart.

    "14 March 2026" may stand as "14 March" in a log of 2026.
    """
    values = {item.value for item in known}
    if date in values or "-" not in date:
        # A bare year may be a part of a date; a time stands alone.
        return any(value == date or value.startswith(f"{date}-") for value in values)
    year, _, day = date.partition("-")
    if not year:
        return any(value.partition("-")[2].startswith(day) for value in values)
    years = {value.partition("-")[0] for value in values}
    return f"-{day}" in values and year in years


def _is_written(text: str, sources: Sequence[str]) -> bool:
    """Tell whether a source holds the number as a part of something else, such as a code."""
    pattern = re.compile(rf"(?<!\d){re.escape(text)}(?!\d)")
    return any(pattern.search(source) for source in sources)


def _is_other_unit(quantity: Quantity, known: Quantity) -> bool:
    units = quantity.known_unit, known.known_unit
    return "" not in units and units[0] != units[1]


def _check_relevance(answer: JudgedAnswer) -> RuleResult | None:
    """Compare words: a share that suffices passes, and less says nothing.

    An answer whose passages hold none of the names and codes of the question is about others.
    """
    question_keys = extract_stems(answer.question)
    if not question_keys or answer.is_foreign:
        return None
    texts = [answer.text, *(quote for item in answer.sentences for quote in item.quotes)]
    texts += [title for item in answer.sentences for title in _list_titles(item)]
    passages = [passage for item in answer.sentences for passage in item.passages]
    terms = find_question_terms(answer.question, answer.language)
    named = [*terms.identifiers, *terms.names]
    if named and not _hold_any(named, texts) and not _hold_any(named, passages):
        return RuleResult(0.0, f"answer and cited passages do not hold {', '.join(named[:3])}")
    held = set().union(*map(extract_stems, texts))
    share = len(question_keys & held) / len(question_keys)
    evidence = f"answer and citations hold {share:.0%} of the question's words"
    # An answer in other words than the question is none the worse.
    return RuleResult(share, evidence, can_fail=False)


def _hold_any(terms: Sequence[str], texts: Sequence[str]) -> bool:
    held = index_text_terms(texts)
    return any(held.holds_code(term) or held.holds_name(term) for term in terms)


def _check_consistency(answer: JudgedAnswer) -> RuleResult | None:
    if len(answer.sentences) < 2:
        return RuleResult(1.0, "a single sentence")
    if answer.has_conflict:
        return RuleResult(1.0, "the answer reports that its sources disagree")
    faults = [
        f"{_shorten(first.text)} and {_shorten(second.text)}: {fault}"
        for first, second in combinations(answer.sentences, 2)
        if not _cite_different_rows(first, second)
        and (fault := _find_contradiction(first.text, second.text)) is not None
    ]
    return _report(faults, "no two sentences state another value, or one the negation of the other")


def _cite_different_rows(first: JudgedSentence, second: JudgedSentence) -> bool:
    """Tell whether the sentences are about different table rows, which one cell may tell apart."""
    has_row = any("|" in quote for quote in (*first.quotes, *second.quotes))
    return has_row and first.quotes != second.quotes


def _check_contradiction(answer: JudgedAnswer) -> RuleResult | None:
    if answer.is_foreign:
        return None
    faults = []
    for sentence in answer.sentences:
        claims = [claim for quote in sentence.quotes for claim in _list_clauses(quote)]
        for clause in _list_clauses(sentence.text):
            found = [
                (claim, _find_contradiction(clause, claim) or _find_other_name(clause, claim))
                for claim in claims
            ]
            # What one quote says, another may not contradict.
            is_said = any(fault is None and _says(claim, clause) for claim, fault in found)
            faults += [
                f"{_shorten(clause)} against {_shorten(claim)}: {fault}"
                for claim, fault in found
                if fault is not None and not is_said
            ]
    return _report(faults, "no citation states another value, the negation, or other names")


def _list_clauses(text: str) -> list[str]:
    """Return the text and, if they are long enough to compare, its clauses."""
    clauses = _CLAUSE_END.split(text)
    long_ones = [clause for clause in clauses if len(_list_words(clause)) >= _MIN_CLAUSE_WORDS]
    return [text, *(long_ones if len(clauses) > 1 else [])]


def _says(claim: str, clause: str) -> bool:
    values = {item.value for item in find_quantities(claim)}
    names = _list_names(clause)
    return (
        _list_words(clause) <= _list_words(claim)
        and all(item.value in values for item in find_quantities(clause))
        and _is_negated(clause) == _is_negated(claim)
        and names == [name for name in _list_names(claim) if name in names]
    )


def _check_pii(answer: JudgedAnswer) -> RuleResult:
    text = answer.text
    kinds: Collection[IdentifierKind] = ("ssn", "email", "phone", "card", "cpf", "cnpj")
    found = sorted({item.kind for item in find_identifiers(text, kinds, answer.phone_regions)})
    return _report(
        [f"shows {kind}" for kind in found], "no identifier that can be recognized by its form"
    )


def _find_contradiction(first: str, second: str) -> str | None:
    """Return how two statements about the same contradict each other, or None.

    Both must share nearly all words: what one of them adds may explain the difference.
    """
    first_words, second_words = _list_words(first), _list_words(second)
    shared, union = first_words & second_words, first_words | second_words
    if len(shared) < _MIN_SHARED_WORDS or _list_codes(first) != _list_codes(second):
        return None
    first_only, second_only = first_words - second_words, second_words - first_words
    opposites = [
        (one, other)
        for one in first_only
        for other in second_only
        if other in _OPPOSITES.get(one, ())
    ]
    # A pair of opposites stands at the same place of both.
    if len(shared) + len(opposites) < _MIN_SIMILARITY * (len(union) - len(opposites)):
        return None
    if opposites:
        return f"{opposites[0][0]} against {opposites[0][1]}"
    if _is_negated(first) != _is_negated(second):
        return "one of them is negated"
    return _find_other_value(first, second) or _find_swap(first, second)


def _find_other_value(first: str, second: str) -> str | None:
    quantities = find_quantities(first), find_quantities(second)
    kinds = [[(item.kind, item.unit) for item in items] for items in quantities]
    if kinds[0] != kinds[1]:
        return None
    return next(
        (
            f"{first[one.start : one.end]} against {second[other.start : other.end]}"
            for one, other in zip(*quantities, strict=True)
            if one.value != other.value
        ),
        None,
    )


def _find_swap(first: str, second: str) -> str | None:
    """Find two names in exchanged places of otherwise equal sentences."""
    first_names, second_names = _list_names(first), _list_names(second)
    if (
        "|" in first + second  # cells of a table row
        or len(first_names) < 2
        or first_names == second_names
        or sorted(first_names) != sorted(second_names)
    ):
        return None
    first_frame, second_frame = (
        [word for word in split_words(text) if word not in first_names] for text in (first, second)
    )
    similarity = difflib.SequenceMatcher(None, first_frame, second_frame, autojunk=False).ratio()
    return "names in other places" if similarity >= _MIN_FRAME_SIMILARITY else None


def _find_other_name(first: str, second: str) -> str | None:
    """Find other names, but for the first word, in otherwise equal sentences."""
    names = [
        {match.lower() for match in _NAME.findall(text.partition(" ")[2])}
        for text in (first, second)
    ]
    if "|" in first + second or not all(names) or names[0] & names[1]:
        return None
    frames = [
        [word for word in split_words(text) if word not in names[0] | names[1]]
        for text in (first, second)
    ]
    content = [word for word in frames[0] if not is_function_word(word)]
    if frames[0] != frames[1] or len(content) < _MIN_SHARED_WORDS:
        return None
    return f"{' '.join(sorted(names[0]))} against {' '.join(sorted(names[1]))}"


def _list_names(text: str) -> list[str]:
    return [name.lower() for name in _NAME.findall(text) if not is_function_word(name)]


def _list_words(text: str) -> set[str]:
    """Return the content words, without quantities and negations."""
    text = blank_quantities(text, find_quantities(text))
    return {
        stem_word(word)
        for word in split_words(text)
        if word not in _NEGATIONS and (stem_word(word) in _OPPOSITES or not is_function_word(word))
    }


def _list_codes(text: str) -> set[str]:
    """Return the codes, such as HX-9, that tell what a statement is about."""
    codes = find_question_terms(blank_quantities(text, find_quantities(text)), None).codes
    return {code.lower() for code in codes if any(map(str.isalpha, code))}


def _is_negated(text: str) -> bool:
    return any(word in _NEGATIONS or word.endswith(("n't", "n’t")) for word in split_words(text))


def _report(faults: Sequence[str], praise: str) -> RuleResult:
    return RuleResult(0.0 if faults else 1.0, "; ".join(faults[:_MAX_FAULTS]) if faults else praise)


def _shorten(text: str) -> str:
    return f"“{text[:_MAX_QUOTED]}…”" if len(text) > _MAX_QUOTED else f"“{text}”"


_MAX_FAULTS, _MAX_QUOTED = 3, 80
# Not settings: they define when two sentences are about the same thing. A check is tuned by its
# threshold.
_MIN_SHARED_WORDS = 2
_MIN_SIMILARITY = 0.75
_MIN_FRAME_SIMILARITY = 0.8
# Shorter clauses have too few words to tell what they are about.
_MIN_CLAUSE_WORDS = 3
_CLAUSE_END = re.compile(r"[,;]\s+")
_NAME = re.compile(r"(?<!\w)[^\W\d_a-zà-öø-ÿ][\w'’-]{2,}")
_NEGATIONS = frozenset(
    {
        "not", "no", "never", "nor", "neither", "without", "cannot", "none", "nobody",
        "não", "nunca", "nem", "sem", "jamais", "nenhum", "nenhuma", "ninguém",
        "sin", "ningún", "ninguna", "nadie", "pas", "sans", "aucun", "aucune", "ni",
        "nicht", "kein", "keine", "keinen", "nie", "niemals", "ohne",
    }
)  # fmt: skip
_OPPOSITES: Mapping[str, set[str]] = {}
for _pair in (
    "before after", "above below", "more less", "most least", "minimum maximum", "first last",
    "open closed", "opened closed", "opens closes", "allowed forbidden", "allowed prohibited",
    "permitted prohibited", "required optional", "included excluded", "rise fall", "rises falls",
    "rose fell", "increased decreased", "increases decreases", "accepted rejected",
    "accepts rejects", "buyer seller", "tenant landlord", "up down", "higher lower",
    "longer shorter", "earlier later", "won lost", "succeeded failed",
    "antes depois", "acima abaixo", "mais menos", "permitido proibido", "aberto fechado",
    "máximo mínimo", "sobe desce", "aumentou diminuiu", "obrigatório facultativo",
):  # fmt: skip
    _one, _other = map(stem_word, _pair.split())
    _OPPOSITES = {
        **_OPPOSITES,
        _one: {*_OPPOSITES.get(_one, ()), _other},
        _other: {*_OPPOSITES.get(_other, ()), _one},
    }
_RULES: Mapping[CheckName, Callable[[JudgedAnswer], RuleResult | None]] = {
    "citation_coverage": _check_coverage,
    "groundedness": _check_groundedness,
    "hallucination": _check_hallucination,
    "relevance": _check_relevance,
    "consistency": _check_consistency,
    "pii": _check_pii,
    "contradiction": _check_contradiction,
}
