"""One kind for each name: the one that its fullest and most frequent spellings speak for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from engines.extract.relations import NAMES
from schemas.values import Extraction


def kinds(spelled: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Key → kind, of (key, kind, as written). The longer a name is written, the more it tells."""
    votes: dict[str, Counter[str]] = {}
    for key, kind, written in spelled:
        words = written.count(" ") + 1
        votes.setdefault(key, Counter())[kind] += 2 * words**2 if kind != "MISC" else 1
    return {key: max(sorted(count), key=count.__getitem__) for key, count in votes.items()}


def agreed(found: Sequence[Extraction]) -> Extraction:
    """Several passages as one: a name has the same kind in all of them."""
    chosen = kinds((mention.key, mention.type, mention.name) for one in found for mention in one.mentions)
    return Extraction(
        mentions=[mention.model_copy(update={"type": _as(mention.type, mention.key, chosen)}) for one in found for mention in one.mentions],
        relations=[
            relation.model_copy(update={"subject": _end(relation.subject, chosen), "object": _end(relation.object, chosen)})
            for one in found
            for relation in one.relations
        ],
        claims=[claim.model_copy(update={"subject": _end(claim.subject, chosen)}) for one in found for claim in one.claims],
    )


def _end(end: tuple[str, str], chosen: Mapping[str, str]) -> tuple[str, str]:
    return _as(end[0], end[1], chosen), end[1]


def _as(kind: str, key: str, chosen: Mapping[str, str]) -> str:
    """Only what may be taken for each other is."""
    other = chosen.get(key, kind)
    return other if kind in NAMES and other in NAMES else kind
