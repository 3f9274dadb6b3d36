"""Resolve a document's title, collection, tags, metadata and readers from its revisions and
amendments.

An amendment holds until a later statement about the same field (for metadata: the same key), or
until the document is withdrawn. One of a caller that the readers before it exclude has no effect.
The result depends only on the statements, not on the sequence in which they arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

OrderKey = tuple[int, ...]
StatedFields = Mapping[str, Any]
"""The subset of `title`, `collection`, `tags`, `metadata` and `readers` that is stated."""
AMENDABLE_FIELDS = ("title", "collection", "tags", "metadata", "readers")
EVERYONE = "everyone"
Readers = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class FieldStatement:
    """Fields stated by a revision or an amendment.

    `identity` breaks ties between statements of the same order.
    """

    order: OrderKey
    identity: UUID
    fields: StatedFields
    is_revision: bool
    limited_to: Readers = None
    """Reader names of the caller that requested the change; None for one without limits."""


@dataclass(frozen=True, slots=True)
class ResolvedFields:
    """The effective fields. `amended_fields` differ from the latest revision."""

    title: str | None
    collection: str | None
    tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    readers: tuple[str, ...] | None
    amended_fields: tuple[str, ...]


def may_read(names: Readers, readers: Readers) -> bool:
    """Return whether a caller with these reader names may read a document with these readers.

    None: a caller without limits, and a document that everyone may read.
    """
    return names is None or readers is None or not set(names).isdisjoint(readers)


def stated_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a revision states. Empty fields state nothing.

    Readers are the exception: an empty list denies access to every limited caller.
    """
    stated = {
        name: list(value) if name in ("tags", "readers") else value
        for name in AMENDABLE_FIELDS
        if (value := fields.get(name))
    }
    return stated | (
        {"readers": []} if fields.get("readers") is not None and not fields["readers"] else {}
    )


def normalize_readers(readers: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the distinct readers in order, or None if everyone in the tenant may read."""
    return (
        None
        if readers is None or EVERYONE in (unique_names := tuple(sorted(set(readers))))
        else unique_names
    )


def resolve_amendments(statements: Sequence[FieldStatement]) -> ResolvedFields | None:
    """Return the effective fields, or None if there is no revision yet."""
    latest = max(
        (statement for statement in statements if statement.is_revision),
        key=_sort_key,
        default=None,
    )
    if latest is None:
        return None
    effective = {path: value for path, (value, _) in _resolve_effective(statements)[0].items()}
    revision_fields = latest.fields
    amended_values = {name: value for (name, key), value in effective.items() if key is None}
    amended_metadata = {key: value for (name, key), value in effective.items() if key is not None}
    metadata = {**revision_fields.get("metadata", {}), **amended_metadata}
    return ResolvedFields(
        title=amended_values.get("title", revision_fields.get("title")) or None,
        collection=amended_values.get("collection", revision_fields.get("collection")) or None,
        tags=tuple(amended_values.get("tags", revision_fields.get("tags")) or ()),
        metadata={
            name: value
            for name, value in metadata.items()
            # A null in an amendment removes the key; a null from a revision stays.
            if not (name in amended_metadata and value is None)
        },
        readers=normalize_readers(amended_values.get("readers", revision_fields.get("readers"))),
        amended_fields=tuple(sorted({name for name, _ in effective})),
    )


def is_effective(statement: FieldStatement, statements: Iterable[FieldStatement]) -> bool:
    """Return whether any field of this amendment is in effect."""
    return any(
        (effective_statement.order, effective_statement.identity)
        == (statement.order, statement.identity)
        for _, effective_statement in _resolve_effective(statements)[0].values()
    )


def resolve_readers(statements: Iterable[FieldStatement]) -> Readers:
    """Return the readers in effect, also of a document without a revision yet."""
    return _resolve_effective(statements)[1]


def _resolve_effective(
    statements: Iterable[FieldStatement],
) -> tuple[dict[tuple[str, str | None], tuple[Any, FieldStatement]], Readers]:
    """Map each field (and metadata key) to its amended value and the amendment, and return the
    readers in effect.

    Fields that a later revision states are left out.
    """
    effective: dict[tuple[str, str | None], tuple[Any, FieldStatement]] = {}
    revision_readers = readers = None
    for statement in sorted(statements, key=_sort_key):
        if not may_read(statement.limited_to, readers):
            continue
        if statement.is_revision:
            revision_readers = statement.fields.get("readers")
        for path, value in _flatten_fields(statement.fields):
            if statement.is_revision:
                # A later revision ends an amendment of the same field; its own value then holds.
                effective.pop(path, None)
            else:
                effective[path] = (value, statement)
        amended_readers, _ = effective.get(("readers", None), (revision_readers, None))
        readers = normalize_readers(amended_readers)
    return effective, readers


def _flatten_fields(fields: StatedFields) -> Iterator[tuple[tuple[str, str | None], Any]]:
    for name, value in fields.items():
        if name == "metadata":
            yield from (((name, key), inner) for key, inner in value.items())
        else:
            yield (name, None), value


def _sort_key(statement: FieldStatement) -> tuple[OrderKey, bool, UUID]:
    # At the same order an amendment applies to the revision, hence after it.
    return statement.order, not statement.is_revision, statement.identity
