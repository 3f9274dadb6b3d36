"""What a sentence says of two of its names: a verb between them, or only that they stand together. And what amounts, dates and identifiers it gives them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from engines.extract.values import Found
from engines.names import fold_name

NAMES = frozenset({"PERSON", "ORG", "LOC", "MISC"})
BY_VERB, TOGETHER = 0.8, 0.3
RELATED = "related_to"
FARTHEST = 80
"""Characters between two names that a verb may join."""
FARTHEST_WORD = 400
"""Characters before a value in which its property is looked for."""
MOST_NAMES = 6
"""Of a sentence with more names only neighbours are related: it is a list."""

_PASSIVE = re.compile(
    r"\b(?:is|are|was|were|been|being|é|são|foi|foram|sendo|sido)\s+(?:\w+\s+)?(?P<verb>\w+(?:ed|en|id[oa]s?|ad[oa]s?)|made|held|led|built|sold|bought|feit[oa]s?|escrit[oa]s?)\s+(?:by|por|pel[oa]s?)\b",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"\b(?P<verb>\w{2,}ed|\w{3,}(?:ou|iu|eu)|\w{2,}(?:aram|eram|iram)|"
    r"owns?|leads?|runs?|makes?|sells?|buys?|supplies|supplys?|acquires?|operates?|manages?|directs?|employs?|provides?|produces?|represents?|includes?|controls?|signs?|pays?|works?|lives?|"
    r"borders?|joins?|founds?|heads?|chairs?|writes?|wrote|led|sold|bought|made|built|held|took|gave|won|lost|met|became|began|"
    r"possui|lidera|dirige|fabrica|vende|compra|fornece|adquire|opera|administra|emprega|produz|representa|inclui|controla|assina|paga|trabalha|vive|pertence|preside|escreve|"
    r"fez|deu|veio|teve|disse|é|foi|is|was|são|are)\b(?:\s+(?P<particle>in|at|by|for|of|with|to|from|em|no|na|de|da|do|por|com|para)\b)?",
    re.IGNORECASE,
)
_WEAK = frozenset({"is", "was", "are", "é", "foi", "são"})
_PROPERTIES = {
    "MONEY": {
        "price": "price preço preco", "cost": "cost costs custo custa custam", "fee": "fee fees taxa honorários", "salary": "salary wage salário",
        "revenue": "revenue sales receita faturamento", "penalty": "penalty fine multa", "total": "total",
    },
    "DATE": {
        "due_date": "due vencimento vence prazo deadline", "founded": "founded established fundada fundado criada criado", "born": "born nasceu nascido nascida",
        "died": "died morreu faleceu", "signed": "signed assinado assinada assinou", "delivery": "delivery delivered entrega entregue",
        "start": "starts begins commence início começa inicia", "end": "ends expires término termina expira",
    },
    "IDENTIFIER": {
        "contract_number": "contract contrato agreement", "tax_id": "cnpj cpf nif vat", "email": "email e-mail mail", "case_number": "case process processo autos",
        "invoice_number": "invoice fatura nota",
    },
}  # fmt: skip
_PROPERTY = {kind: {word: name for name, words in names.items() for word in words.split()} for kind, names in _PROPERTIES.items()}
_FALLBACK = {"MONEY": "amount", "DATE": "date", "IDENTIFIER": "identifier"}


@dataclass(frozen=True, slots=True)
class Related:
    subject: Found
    type: str
    object: Found
    weight: float


@dataclass(frozen=True, slots=True)
class Claimed:
    subject: Found
    property: str
    value: Found


def relations(sentence: str, found: Sequence[Found]) -> Iterator[Related]:
    """Subject and object as the verb has them; a passive turns them round."""
    subjects = [item for item in found if item.type in NAMES]
    joined = set()
    for left, right in pairwise(subjects):
        related = _by_verb(sentence[left.end : right.start], left, right)
        if related and left.key != right.key:
            joined.add((left.key, right.key))
            yield related
    pairs = combinations(subjects, 2) if len(subjects) <= MOST_NAMES else pairwise(subjects)
    for left, right in pairs:
        if left.key != right.key and (left.key, right.key) not in joined:
            joined.add((left.key, right.key))
            yield Related(left, RELATED, right, TOGETHER)


def claims(sentence: str, found: Sequence[Found]) -> Iterator[Claimed]:
    """Each value belongs to the last name before it, else to the first of the sentence."""
    subjects = [item for item in found if item.type in NAMES]
    ends = [item.end for item in subjects]
    for value in found:
        if value.type in _FALLBACK and subjects:
            before = bisect_right(ends, value.start)
            words = sentence[max(0, value.start - FARTHEST_WORD) : value.start]
            yield Claimed(subjects[max(before - 1, 0)], _property(words, value), value)


def _by_verb(between: str, left: Found, right: Found) -> Related | None:
    if len(between) > FARTHEST or ";" in between:
        return None
    if passive := _PASSIVE.search(between):
        return Related(right, _label(passive["verb"], None), left, BY_VERB)
    verbs = [match for match in _VERB.finditer(between) if match["verb"].lower() not in _WEAK or match["particle"]]
    return Related(left, _label(verbs[0]["verb"], verbs[0]["particle"]), right, BY_VERB) if verbs else None


def _label(verb: str, particle: str | None) -> str:
    return "_".join(fold_name(word).replace(" ", "_") for word in (verb, particle) if word)


def _property(before: str, value: Found) -> str:
    """By the last telling word among the eight before the value."""
    words = [word.strip(".,:;()").lower() for word in before.split()[-8:]]
    known = _PROPERTY[value.type]
    return next((known[word] for word in reversed(words) if word in known), _FALLBACK[value.type])
