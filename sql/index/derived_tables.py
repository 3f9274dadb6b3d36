"""The derived tables of a generation: their columns, how a row becomes values, and bulk inserts.

Inserting the same row again has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from pgvector import HalfVector

from schemas.events import Event
from schemas.ids import make_entity_id
from schemas.ports.ledger import ProjectedEvent
from schemas.rows import (
    ChildRow,
    ClaimRow,
    MentionRow,
    ParentRow,
    PartCompletedRow,
    RelationRow,
    Row,
    TextRow,
    TokenStateRow,
    VectorRow,
)
from sql.encoding import encode_json_text, format_array, replace_nul
from sql.index.text_search_config import resolve_text_search_config
from sql.pool import Connection
from sql.query_loader import load_query

RowValues = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DerivedTable:
    """A table that is partitioned by generation.

    `columns` maps name to type and follows generation, document, order and tenant. The first
    `n_keys` columns make a row unique within its revision.
    """

    name: str
    columns: Mapping[str, str]
    n_keys: int
    to_values: Callable[[Any, Event[Any]], RowValues]


OWNER_COLUMNS = {"generation": "text", "document_id": "uuid", "ord": "bigint[]", "tenant": "text"}
_TENANT = list(OWNER_COLUMNS).index("tenant")
POSITION_COLUMNS = {
    "event_id": "uuid",
    "log_topic": "text",
    "log_partition": "int",
    "log_offset": "bigint",
}
EVIDENCE_COLUMNS = {"chunk_id": "uuid", "char_start": "int", "char_end": "int"}


def _to_position_values(event: Event[Any]) -> RowValues:
    position = event.position
    assert position is not None
    return (event.id, position.topic, position.partition, position.offset)


# The same names repeat in thousands of rows, each of which would be hashed again.
@lru_cache(maxsize=50_000)
def derive_entity_id(tenant: str, type_: str, key: str) -> UUID:
    return make_entity_id(tenant, type_, key)


def _to_text_values(row: TextRow, event: Event[Any]) -> RowValues:
    blob = row.blob.model_dump(mode="json") if row.blob else None
    return (
        replace_nul(row.title),
        replace_nul(row.language),
        replace_nul(row.media_type),
        row.content_sha256,
        row.text_sha256,
        row.characters,
        row.pages,
        replace_nul(row.markdown),
        blob,
        row.warnings,
        row.document_date,
        event.pipeline_fingerprint,
        *_to_position_values(event),
    )


def _to_parent_values(row: ParentRow, event: Event[Any]) -> RowValues:
    return (
        row.id,
        row.ordinal,
        replace_nul(row.text),
        replace_nul(row.section),
        row.char_start,
        row.char_end,
        list(row.pages),
        row.tokens,
    )


def _to_child_values(row: ChildRow, event: Event[Any]) -> RowValues:
    return (
        row.id,
        row.parent_id,
        row.ordinal,
        row.kind,
        replace_nul(row.text),
        replace_nul(row.prefix),
        row.char_start,
        row.char_end,
        row.spans,
        row.tokens,
        replace_nul(row.language),
        resolve_text_search_config(row.language),
    )


def _to_vector_values(row: VectorRow, event: Event[Any]) -> RowValues:
    return (row.chunk_id, row.vector, row.background_dense, row.background_maxsim)


def _to_state_values(row: TokenStateRow, event: Event[Any]) -> RowValues:
    return (row.chunk_id, row.blob_key, row.offset, row.length)


def _to_part_values(row: PartCompletedRow, event: Event[Any]) -> RowValues:
    return (row.kind, row.part, row.parts, *_to_position_values(event))


def _to_mention_values(row: MentionRow, event: Event[Any]) -> RowValues:
    return (
        row.id,
        row.chunk_id,
        row.char_start,
        row.char_end,
        derive_entity_id(row.tenant, row.type, row.key),
        None,
        None,
        row.type,
        replace_nul(row.key),
        replace_nul(row.name),
    )


def _to_relation_values(row: RelationRow, event: Event[Any]) -> RowValues:
    subject, object_ = (
        derive_entity_id(row.tenant, row.subject_type, row.subject_key),
        derive_entity_id(row.tenant, row.object_type, row.object_key),
    )
    return (
        row.id,
        row.chunk_id,
        row.char_start,
        row.char_end,
        subject,
        None,
        row.type,
        object_,
        None,
        row.weight,
        row.extractor,
    )


def _to_claim_values(row: ClaimRow, event: Event[Any]) -> RowValues:
    subject = derive_entity_id(row.tenant, row.subject_type, row.subject_key)
    return (
        row.id,
        row.chunk_id,
        row.char_start,
        row.char_end,
        subject,
        None,
        replace_nul(row.property),
        replace_nul(row.value),
    )


DERIVED_TABLES: Mapping[type[Row], DerivedTable] = {
    TextRow: DerivedTable(
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
            "document_date": "date",
            "how": "text",
            **POSITION_COLUMNS,
        },
        0,
        _to_text_values,
    ),
    ParentRow: DerivedTable(
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
        _to_parent_values,
    ),
    ChildRow: DerivedTable(
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
        _to_child_values,
    ),
    VectorRow: DerivedTable(
        "chunk_vectors",
        {
            "chunk_id": "uuid",
            "embedding": "halfvec",
            "background_dense": "real",
            "background_maxsim": "real",
        },
        1,
        _to_vector_values,
    ),
    TokenStateRow: DerivedTable(
        "chunk_states",
        {"chunk_id": "uuid", "blob_key": "text", "blob_offset": "int", "blob_length": "int"},
        1,
        _to_state_values,
    ),
    PartCompletedRow: DerivedTable(
        "revision_parts",
        {"kind": "text", "part": "int", "parts": "int", **POSITION_COLUMNS},
        2,
        _to_part_values,
    ),
    MentionRow: DerivedTable(
        "entity_mentions",
        {
            "id": "uuid",
            **EVIDENCE_COLUMNS,
            "entity_id": "uuid",
            "written_id": "uuid",
            "entity_type": "text",
            "type": "text",
            "key": "text",
            "name": "text",
        },
        1,
        _to_mention_values,
    ),
    RelationRow: DerivedTable(
        "relations",
        {
            "id": "uuid",
            **EVIDENCE_COLUMNS,
            "subject_id": "uuid",
            "written_subject_id": "uuid",
            "type": "text",
            "object_id": "uuid",
            "written_object_id": "uuid",
            "weight": "real",
            "extractor": "text",
        },
        1,
        _to_relation_values,
    ),
    ClaimRow: DerivedTable(
        "claims",
        {
            "id": "uuid",
            **EVIDENCE_COLUMNS,
            "subject_id": "uuid",
            "written_subject_id": "uuid",
            "property": "text",
            "value": "text",
        },
        1,
        _to_claim_values,
    ),
}
PARTITIONED_TABLES = (
    *(table.name for table in DERIVED_TABLES.values()),
    "visible",
    "lexical_deltas",
    "corpus_deltas",
)


_ENTITY_PLACES: dict[type[Row], list[int]] = {
    kind: [
        place
        for place, name in enumerate((*OWNER_COLUMNS, *DERIVED_TABLES[kind].columns))
        if name in ("entity_id", "subject_id", "object_id")
    ]
    for kind in (MentionRow, RelationRow, ClaimRow)
}
"""Columns with the id of an entity. The written id follows each, and its type that of a mention."""
COPY_MIN_ROWS = 40
"""Fewest rows for which COPY is faster than an insert."""


async def copy_rows(
    connection: Connection, generation: str, events: Sequence[ProjectedEvent]
) -> None:
    """Insert rows with COPY, or with an insert if there are few.

    Raises UniqueViolationError if a row exists (a redelivered part after its claim was pruned):
    roll back and use `insert_rows`.
    """
    rows_by_kind = await _prepare_rows(connection, generation, events)
    few = {kind: rows for kind, rows in rows_by_kind.items() if len(rows) < COPY_MIN_ROWS}
    await _insert(connection, few)
    for kind, rows in rows_by_kind.items():
        if kind in few:
            continue
        table = DERIVED_TABLES[kind]
        # Into the partition itself: COPY into the parent routes each row.
        await connection.copy_records_to_table(
            f"{table.name}_{generation}",
            schema_name="anabranch",
            records=rows,
            columns=[*OWNER_COLUMNS, *table.columns],
        )


async def insert_rows(
    connection: Connection, generation: str, events: Sequence[ProjectedEvent]
) -> None:
    """Insert rows in one statement, keeping existing rows. Slower than `copy_rows`."""
    await _insert(connection, await _prepare_rows(connection, generation, events))


async def _prepare_rows(
    connection: Connection, generation: str, events: Iterable[ProjectedEvent]
) -> dict[type[Row], list[RowValues]]:
    """Return the rows with the entities that people have corrected, which stay locked against
    further corrections until the transaction ends.
    """
    rows_by_kind = _group_rows(generation, events)
    written = {
        (row[_TENANT], row[place])
        for kind, places in _ENTITY_PLACES.items()
        for row in rows_by_kind.get(kind, ())
        for place in places
    }
    corrections = (
        {
            (found["tenant"], found["entity_id"]): found
            for found in await connection.fetch(
                load_query("lock_entity_corrections"),
                list({tenant for tenant, _ in written}),
                [entity for _, entity in written],
            )
        }
        if written
        else {}
    )
    return rows_by_kind | {
        kind: [_correct_row(row, kind, corrections) for row in rows_by_kind[kind]]
        for kind in _ENTITY_PLACES
        if corrections and kind in rows_by_kind
    }


def _correct_row(
    row: RowValues, kind: type[Row], corrections: Mapping[tuple[str, UUID], Any]
) -> RowValues:
    values = list(row)
    for place in _ENTITY_PLACES[kind]:
        if correction := corrections.get((row[_TENANT], row[place])):
            if correction["root_id"] != row[place]:
                values[place : place + 2] = correction["root_id"], row[place]
            if kind is MentionRow:
                values[place + 2] = correction["entity_type"]
    return tuple(values)


def _group_rows(
    generation: str, events: Iterable[ProjectedEvent]
) -> dict[type[Row], list[RowValues]]:
    """Group the values of distinct rows by row type, in the order of the tables."""
    rows_by_kind: dict[type[Row], dict[RowValues, RowValues]] = {
        kind: {} for kind in DERIVED_TABLES
    }
    for event in events:
        for row in event.rows:
            if type(row) in rows_by_kind:
                table = DERIVED_TABLES[type(row)]
                # `Row` includes types that belong to no document; those in the table all do.
                document_row: Any = row
                owner = (
                    generation,
                    document_row.document_id,
                    list(document_row.order),
                    document_row.tenant,
                )
                values = table.to_values(row, event.event)
                key = (document_row.document_id, document_row.order, *values[: table.n_keys])
                # COPY would fail on a row that two events of the batch repeat.
                rows_by_kind[type(row)].setdefault(key, (*owner, *values))
    return {kind: list(rows.values()) for kind, rows in rows_by_kind.items() if rows}


async def _insert(
    connection: Connection, rows_by_kind: Mapping[type[Row], Sequence[RowValues]]
) -> None:
    if not rows_by_kind:
        return
    columns: list[list[Any]] = []
    inserts: list[str] = []
    for kind, rows in rows_by_kind.items():
        table = DERIVED_TABLES[kind]
        types = {**OWNER_COLUMNS, **table.columns}
        parameters = ", ".join(
            f"${n}::{'text' if _is_passed_as_text(type_) else type_}[]"
            for n, type_ in enumerate(types.values(), len(columns) + 1)
        )
        selected = ", ".join(f"{name}::{type_}" for name, type_ in types.items())
        names = ", ".join(types)
        # Ordered: concurrent inserts of the same rows wait for each other and must do so in the
        # same order.
        inserts.append(
            f"insert into {table.name} ({names}) select {selected} from unnest({parameters}) r "
            f"({names}) order by document_id, ord on conflict do nothing"
        )
        columns += [
            [_to_literal(type_, value) for value in column]
            for type_, column in zip(types.values(), zip(*rows, strict=True), strict=True)
        ]
    # One statement: for a document that comes alone each one more costs as much as its rows.
    *others, last = inserts
    others = [f"i{number} as ({insert})" for number, insert in enumerate(others)]
    await connection.execute(f"with {', '.join(others)} {last}" if others else last, *columns)


def _is_passed_as_text(kind: str) -> bool:
    # asyncpg cannot encode arrays of these types, so their elements are passed as text and cast.
    return kind.endswith("[]") or kind in ("jsonb", "halfvec", "regconfig")


def _to_literal(kind: str, value: Any) -> Any:
    if value is None or not _is_passed_as_text(kind) or kind == "regconfig":
        return value
    if kind == "jsonb":
        return encode_json_text(value)
    return format_array(value) if kind.endswith("[]") else HalfVector(value).to_text()
