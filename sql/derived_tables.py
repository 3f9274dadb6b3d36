"""The derived tables of a generation: their columns, and the values of each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from schemas.events import Fact
from schemas.ids import content_id
from schemas.rows import ChildRow, ClaimRow, MentionRow, ParentRow, RelationRow, Row, SettledRow, StateRow, TextRow, VectorRow
from sql.languages import text_config
from sql.storable import text

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """`columns` are name → type, after generation, document, order and tenant; the first `keys` of them make a row unique within its revision."""

    name: str
    columns: Mapping[str, str]
    keys: int
    values: Callable[[Any, Fact[Any]], Values]


OWNER = {"generation": "text", "document_id": "uuid", "ord": "bigint[]", "tenant": "text"}
PLACE = {"fact_id": "uuid", "log_topic": "text", "log_partition": "int", "log_offset": "bigint"}
EVIDENCE = {"chunk_id": "uuid", "char_start": "int", "char_end": "int"}


def _place(fact: Fact[Any]) -> Values:
    position = fact.position
    assert position is not None
    return (fact.id, position.topic, position.partition, position.offset)


@lru_cache(maxsize=50_000)
def entity_id(tenant: str, type_: str, key: str) -> UUID:
    return content_id("entity", tenant, type_, key)


def _text(row: TextRow, fact: Fact[Any]) -> Values:
    blob = row.blob.model_dump(mode="json") if row.blob else None
    return (
        *(text(row.title), text(row.language), text(row.media_type), row.content_sha256, row.text_sha256, row.characters, row.pages, text(row.markdown)),
        *(blob, row.warnings, fact.how, *_place(fact)),
    )


def _parent(row: ParentRow, fact: Fact[Any]) -> Values:
    return (row.id, row.ordinal, text(row.text), text(row.section), row.char_start, row.char_end, list(row.pages), row.tokens)


def _child(row: ChildRow, fact: Fact[Any]) -> Values:
    return (
        *(row.id, row.parent_id, row.ordinal, row.kind, text(row.text), text(row.prefix), row.char_start, row.char_end, row.spans, row.tokens),
        *(text(row.language), text_config(row.language)),
    )


def _vector(row: VectorRow, fact: Fact[Any]) -> Values:
    return (row.chunk_id, row.vector, row.background_dense, row.background_maxsim)


def _state(row: StateRow, fact: Fact[Any]) -> Values:
    return (row.chunk_id, row.blob_key, row.offset, row.length)


def _settled(row: SettledRow, fact: Fact[Any]) -> Values:
    return (row.kind, row.part, row.parts, *_place(fact))


def _mention(row: MentionRow, fact: Fact[Any]) -> Values:
    return (row.id, row.chunk_id, row.char_start, row.char_end, entity_id(row.tenant, row.type, row.key), row.type, text(row.key), text(row.name))


def _relation(row: RelationRow, fact: Fact[Any]) -> Values:
    subject, object_ = entity_id(row.tenant, row.subject_type, row.subject_key), entity_id(row.tenant, row.object_type, row.object_key)
    return (row.id, row.chunk_id, row.char_start, row.char_end, subject, row.type, object_, row.weight, row.extractor)


def _claim(row: ClaimRow, fact: Fact[Any]) -> Values:
    subject = entity_id(row.tenant, row.subject_type, row.subject_key)
    return (row.id, row.chunk_id, row.char_start, row.char_end, subject, text(row.property), text(row.value))


TABLES: Mapping[type[Row], Table] = {
    TextRow: Table(
        "revision_texts",
        {
            "title": "text",
            "language": "text",
            "media_type": "text",
            "content_sha256": "text",
            "text_sha256": "text",
            "characters": "int",
            "pages": "int",
            "markdown": "text",
            "blob": "jsonb",
            "warnings": "jsonb",
            "how": "text",
            **PLACE,
        },
        0,
        _text,
    ),
    ParentRow: Table(
        "parent_chunks",
        {
            "id": "uuid",
            "ordinal": "int",
            "text": "text",
            "section": "text",
            "char_start": "int",
            "char_end": "int",
            "pages": "int[]",
            "tokens": "int",
        },
        1,
        _parent,
    ),
    ChildRow: Table(
        "child_chunks",
        {
            "id": "uuid",
            "parent_id": "uuid",
            "ordinal": "int",
            "kind": "text",
            "text": "text",
            "prefix": "text",
            "char_start": "int",
            "char_end": "int",
            "spans": "jsonb",
            "tokens": "int",
            "language": "text",
            "cfg": "regconfig",
        },
        1,
        _child,
    ),
    VectorRow: Table("chunk_vectors", {"chunk_id": "uuid", "embedding": "halfvec", "background_dense": "real", "background_maxsim": "real"}, 1, _vector),
    StateRow: Table("chunk_states", {"chunk_id": "uuid", "blob_key": "text", "blob_offset": "int", "blob_length": "int"}, 1, _state),
    SettledRow: Table("settled", {"kind": "text", "part": "int", "parts": "int", **PLACE}, 2, _settled),
    MentionRow: Table("entity_mentions", {"id": "uuid", **EVIDENCE, "entity_id": "uuid", "type": "text", "key": "text", "name": "text"}, 1, _mention),
    RelationRow: Table(
        "relations", {"id": "uuid", **EVIDENCE, "subject_id": "uuid", "type": "text", "object_id": "uuid", "weight": "real", "extractor": "text"}, 1, _relation
    ),
    ClaimRow: Table("claims", {"id": "uuid", **EVIDENCE, "subject_id": "uuid", "property": "text", "value": "text"}, 1, _claim),
}
PARTITIONED = (*(table.name for table in TABLES.values()), "visible", "lexical_deltas", "corpus_deltas")
