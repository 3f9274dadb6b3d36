"""Relations between the names of a sentence, and claims that assign values to names."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from engines.extract.values import EntitySpan
from engines.language import fold_name
from schemas.values import Extraction

NAME_TYPES = frozenset({"PERSON", "ORG", "LOC", "MISC"})
VERB_WEIGHT, COOCCURRENCE_WEIGHT = 0.8, 0.3
COOCCURRENCE_TYPE = "related_to"
MAX_VERB_GAP_CHARACTERS = 80
"""Longest gap between two names that a verb relates."""
MAX_PROPERTY_DISTANCE_CHARACTERS = 400
"""Characters before a value that are searched for its property."""
MAX_PAIRED_NAMES = 6
"""In a sentence with more names, probably a list, only neighbors are related."""

_PASSIVE = re.compile(
    r"\b(?:is|are|was|were|been|being|é|são|foi|foram|sendo|sido)\s+(?:\w+\s+)?"
    r"(?P<verb>\w+(?:ed|en|id[oa]s?|ad[oa]s?)|made|held|led|built|sold|bought|feit[oa]s?|"
    r"escrit[oa]s?)\s+(?:by|por|pel[oa]s?)\b",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"\b(?P<verb>\w{2,}ed|\w{3,}(?:ou|iu|eu)|\w{2,}(?:aram|eram|iram)|"
    r"owns?|leads?|runs?|makes?|sells?|buys?|supplies|supplys?|acquires?|operates?|manages?|"
    r"directs?|employs?|provides?|produces?|represents?|includes?|controls?|signs?|pays?|works?|"
    r"lives?|borders?|joins?|founds?|heads?|chairs?|writes?|wrote|led|sold|bought|made|built|held|"
    r"took|gave|won|lost|met|became|began|"
    r"possui|lidera|dirige|fabrica|vende|compra|fornece|adquire|opera|administra|emprega|produz|"
    r"representa|inclui|controla|assina|paga|trabalha|vive|pertence|preside|escreve|"
    r"fez|deu|veio|teve|disse|é|foi|is|was|são|are)\b"
    r"(?:\s+(?P<particle>in|at|by|for|of|with|to|from|em|no|na|de|da|do|por|com|para)\b)?",
    re.IGNORECASE,
)
_COPULAS = frozenset({"is", "was", "are", "é", "foi", "são"})
_PROPERTY_WORDS = {
    "MONEY": {
        "price": "price preço preco",
        "cost": "cost costs custo custa custam",
        "fee": "fee fees taxa honorários",
        "salary": "salary wage salário",
        "revenue": "revenue sales receita faturamento",
        "penalty": "penalty fine multa",
        "total": "total",
    },
    "DATE": {
        "due_date": "due vencimento vence prazo deadline",
        "founded": "founded established fundada fundado criada criado",
        "born": "born nasceu nascido nascida",
        "died": "died morreu faleceu",
        "signed": "signed assinado assinada assinou",
        "delivery": "delivery delivered entrega entregue",
        "start": "starts begins commence início começa inicia",
        "end": "ends expires término termina expira",
    },
    "IDENTIFIER": {
        "contract_number": "contract contrato agreement",
        "tax_id": "cnpj cpf nif vat",
        "email": "email e-mail mail",
        "case_number": "case process processo autos",
        "invoice_number": "invoice fatura nota",
    },
}
_PROPERTY_BY_WORD = {
    kind: {word: name for name, words in names.items() for word in words.split()}
    for kind, names in _PROPERTY_WORDS.items()
}
_DEFAULT_PROPERTIES = {"MONEY": "amount", "DATE": "date", "IDENTIFIER": "identifier"}


@dataclass(frozen=True, slots=True)
class RelationCandidate:
    subject: EntitySpan
    type: str
    object: EntitySpan
    weight: float


@dataclass(frozen=True, slots=True)
class ClaimCandidate:
    subject: EntitySpan
    property: str
    value: EntitySpan


def find_relations(sentence: str, spans: Sequence[EntitySpan]) -> Iterator[RelationCandidate]:
    """Yield relations by verb between neighboring names, then co-occurrences.

    A passive swaps subject and object.
    """
    subjects = [span for span in spans if span.type in NAME_TYPES]
    linked_keys = set()
    for left, right in pairwise(subjects):
        verb_relation = _match_verb(sentence[left.end : right.start], left, right)
        if verb_relation and left.key != right.key:
            linked_keys.add((left.key, right.key))
            yield verb_relation
    pairs = combinations(subjects, 2) if len(subjects) <= MAX_PAIRED_NAMES else pairwise(subjects)
    for left, right in pairs:
        if left.key != right.key and (left.key, right.key) not in linked_keys:
            linked_keys.add((left.key, right.key))
            yield RelationCandidate(left, COOCCURRENCE_TYPE, right, COOCCURRENCE_WEIGHT)


def find_claims(sentence: str, spans: Sequence[EntitySpan]) -> Iterator[ClaimCandidate]:
    """Yield a claim for each value about the last name before it, else about the first name."""
    subjects = [span for span in spans if span.type in NAME_TYPES]
    ends = [span.end for span in subjects]
    for value in spans:
        if value.type in _DEFAULT_PROPERTIES and subjects:
            preceding_count = bisect_right(ends, value.start)
            text_before = sentence[
                max(0, value.start - MAX_PROPERTY_DISTANCE_CHARACTERS) : value.start
            ]
            # The last of the eight words before the value that names a property.
            words = [word.strip(".,:;()").lower() for word in text_before.split()[-8:]]
            property_by_word = _PROPERTY_BY_WORD[value.type]
            property_name = next(
                (property_by_word[word] for word in reversed(words) if word in property_by_word),
                _DEFAULT_PROPERTIES[value.type],
            )
            yield ClaimCandidate(subjects[max(preceding_count - 1, 0)], property_name, value)


def _match_verb(gap_text: str, left: EntitySpan, right: EntitySpan) -> RelationCandidate | None:
    if len(gap_text) > MAX_VERB_GAP_CHARACTERS or ";" in gap_text:
        return None
    if passive := _PASSIVE.search(gap_text):
        return RelationCandidate(right, _format_label(passive["verb"], None), left, VERB_WEIGHT)
    # A copula names a relation only with a particle, as in `is in`.
    verbs = [
        match
        for match in _VERB.finditer(gap_text)
        if match["verb"].lower() not in _COPULAS or match["particle"]
    ]
    return (
        RelationCandidate(
            left, _format_label(verbs[0]["verb"], verbs[0]["particle"]), right, VERB_WEIGHT
        )
        if verbs
        else None
    )


def _format_label(verb: str, particle: str | None) -> str:
    return "_".join(fold_name(word).replace(" ", "_") for word in (verb, particle) if word)


def vote_types(spellings: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Return the type by key, from (key, type, spelling).

    Longer spellings weigh more, being less ambiguous.
    """
    votes: dict[str, Counter[str]] = {}
    for key, kind, spelling in spellings:
        words = spelling.count(" ") + 1
        # MISC is the type without evidence, so it weighs least.
        votes.setdefault(key, Counter())[kind] += 2 * words**2 if kind != "MISC" else 1
    return {
        key: max(sorted(type_counts), key=type_counts.__getitem__)
        for key, type_counts in votes.items()
    }


def unify_types(extractions: Sequence[Extraction]) -> Extraction:
    """Merge extractions of several passages, giving each name the same type in all of them."""
    type_by_key = vote_types(
        (mention.key, mention.type, mention.name)
        for extraction in extractions
        for mention in extraction.mentions
    )
    return Extraction(
        mentions=[
            mention.model_copy(update={"type": pick_type(mention.type, mention.key, type_by_key)})
            for extraction in extractions
            for mention in extraction.mentions
        ],
        relations=[
            relation.model_copy(
                update={
                    "subject": _unify_endpoint(relation.subject, type_by_key),
                    "object": _unify_endpoint(relation.object, type_by_key),
                }
            )
            for extraction in extractions
            for relation in extraction.relations
        ],
        claims=[
            claim.model_copy(update={"subject": _unify_endpoint(claim.subject, type_by_key)})
            for extraction in extractions
            for claim in extraction.claims
        ],
    )


def _unify_endpoint(endpoint: tuple[str, str], type_by_key: Mapping[str, str]) -> tuple[str, str]:
    return pick_type(endpoint[0], endpoint[1], type_by_key), endpoint[1]


def pick_type(kind: str, key: str, type_by_key: Mapping[str, str]) -> str:
    voted_type = type_by_key.get(key, kind)
    # Names never become values or the reverse.
    return voted_type if kind in NAME_TYPES and voted_type in NAME_TYPES else kind
