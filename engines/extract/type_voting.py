"""Voting on the type of each name by its spellings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from engines.extract.relations import NAME_TYPES
from schemas.values import Extraction


def vote_types(spellings: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Return the type by key, from (key, type, spelling).

    Longer spellings weigh more, being less ambiguous.
    """
    votes: dict[str, Counter[str]] = {}
    for key, kind, spelling in spellings:
        words = spelling.count(" ") + 1
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
            mention.model_copy(update={"type": _pick_type(mention.type, mention.key, type_by_key)})
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
    return _pick_type(endpoint[0], endpoint[1], type_by_key), endpoint[1]


def _pick_type(kind: str, key: str, type_by_key: Mapping[str, str]) -> str:
    voted_type = type_by_key.get(key, kind)
    # Names never become values or the reverse.
    return voted_type if kind in NAME_TYPES and voted_type in NAME_TYPES else kind
