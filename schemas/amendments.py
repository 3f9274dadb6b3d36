"""What is said of a document's title, collection, tags, metadata and readers, by its revisions and beside them, and what holds in the end.

An amendment holds until something later speaks of the same field (of metadata: of the same key), or the document is withdrawn. So what holds follows
from what was said, whatever the order in which it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

OrderKey = tuple[int, ...]
Said = Mapping[str, Any]
"""Of `title`, `collection`, `tags`, `metadata` and `readers` those that are spoken of."""
FIELDS = ("title", "collection", "tags", "metadata", "readers")
EVERYONE = "everyone"


@dataclass(frozen=True, slots=True)
class Saying:
    """`identity` decides between two of one order."""

    order: OrderKey
    identity: UUID
    said: Said
    by_revision: bool


@dataclass(frozen=True, slots=True)
class Amended:
    """`amended` names the fields in which it differs from what the latest revision said."""

    title: str | None
    collection: str | None
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    readers: tuple[str, ...] | None
    amended: tuple[str, ...]


def spoken(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a revision with these fields says: an empty field says nothing. An empty list of readers does: it shuts everyone out."""
    said = {name: list(value) if name in ("tags", "readers") else value for name in FIELDS if (value := fields.get(name))}
    return said | ({"readers": []} if fields.get("readers") is not None and not fields["readers"] else {})


def limited_to(readers: Iterable[str] | None) -> tuple[str, ...] | None:
    """The readers that a document is limited to, each once; None where everyone in the tenant may read it."""
    return None if readers is None or EVERYONE in (names := tuple(sorted(set(readers)))) else names


def what_holds(sayings: Sequence[Saying]) -> Amended | None:
    """None where there is no revision yet."""
    latest = max((saying for saying in sayings if saying.by_revision), key=_order, default=None)
    if latest is None:
        return None
    held = {place: value for place, (value, _) in _held(sayings).items()}
    base, whole = latest.said, {name: value for (name, key), value in held.items() if key is None}
    keys = {key: value for (name, key), value in held.items() if key is not None}
    metadata = {**base.get("metadata", {}), **keys}
    return Amended(
        title=whole.get("title", base.get("title")) or None,
        collection=whole.get("collection", base.get("collection")) or None,
        tags=tuple(whole.get("tags", base.get("tags")) or ()),
        metadata={name: value for name, value in metadata.items() if not (name in keys and value is None)},
        readers=limited_to(whole.get("readers", base.get("readers"))),
        amended=tuple(sorted({name for name, _ in held})),
    )


def holds(saying: Saying, sayings: Iterable[Saying]) -> bool:
    """Whether anything of this amendment does."""
    return any((owner.order, owner.identity) == (saying.order, saying.identity) for _, owner in _held(sayings).values())


def _held(sayings: Iterable[Saying]) -> dict[tuple[str, str | None], tuple[Any, Saying]]:
    """Field, and key of the metadata → what an amendment says of it that nothing later speaks of, and which."""
    found: dict[tuple[str, str | None], tuple[Any, Saying]] = {}
    for saying in sorted(sayings, key=_order):
        for place, value in _places(saying.said):
            if saying.by_revision:
                found.pop(place, None)
            else:
                found[place] = (value, saying)
    return found


def _places(said: Said) -> Iterator[tuple[tuple[str, str | None], Any]]:
    for name, value in said.items():
        if name == "metadata":
            yield from (((name, key), inner) for key, inner in value.items())
        else:
            yield (name, None), value


def _order(saying: Saying) -> tuple[OrderKey, bool, UUID]:
    return saying.order, not saying.by_revision, saying.identity
