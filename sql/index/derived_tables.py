"""The derived tables of a generation: their columns, how a row becomes values, and bulk inserts.

Inserting the same row again has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
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
from sql.database import Connection, encode_json_text, format_array, load_query, replace_nul
from sql.index.lexical import resolve_text_search_config

RowValues = tuple[Any, ...]
ReadValue = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class DerivedTable:
    """A table that is partitioned by generation.

    `declaration` has the names and types of its columns, as in SQL, which follow generation,
    document, order and tenant. The first `n_keys` columns make a row unique within its revision.
    A column has the value of the row's field of that name, unless `READERS` has another one.
    """

    name: str
    n_keys: int
    declaration: str
    columns: Mapping[str, str] = field(init=False)
    _readers: Sequence[ReadValue] = field(init=False)

    def __post_init__(self) -> None:
        columns = dict(column.split() for column in self.declaration.split(","))
        object.__setattr__(self, "columns", columns)
        readers = [READERS.get(name) or _read_field(name, columns[name]) for name in columns]
        object.__setattr__(self, "_readers", readers)

    def to_values(self, row: Any, event: Event[Any]) -> RowValues:
        return tuple(read(row, event) for read in self._readers)


def _read_field(name: str, kind: str) -> ReadValue:
    get = attrgetter(name)
    return (
        (lambda row, event: replace_nul(get(row)))
        if kind == "text"
        else lambda row, event: get(row)
    )


# The same names repeat in thousands of rows, each of which would be hashed again.
_derive_entity_id = lru_cache(maxsize=50_000)(make_entity_id)


READERS: Mapping[str, ReadValue] = {
    "blob": lambda row, event: row.blob.model_dump(mode="json") if row.blob else None,
    "how": lambda row, event: event.pipeline_fingerprint,
    "cfg": lambda row, event: resolve_text_search_config(row.language),
    "embedding": lambda row, event: row.vector,
    "blob_offset": lambda row, event: row.offset,
    "blob_length": lambda row, event: row.length,
    "entity_id": lambda row, event: _derive_entity_id(row.tenant, row.type, row.key),
    "subject_id": lambda row, event: _derive_entity_id(
        row.tenant, row.subject_type, row.subject_key
    ),
    "object_id": lambda row, event: _derive_entity_id(row.tenant, row.object_type, row.object_key),
    # Set where people have corrected the entity.
    **dict.fromkeys(
        ("written_id", "entity_type", "written_subject_id", "written_object_id"),
        lambda row, event: None,
    ),
    "event_id": lambda row, event: event.id,
    "log_topic": lambda row, event: event.position.topic,
    "log_partition": lambda row, event: event.position.partition,
    "log_offset": lambda row, event: event.position.offset,
}
OWNER_COLUMNS = {"generation": "text", "document_id": "uuid", "ord": "bigint[]", "tenant": "text"}
_TENANT = list(OWNER_COLUMNS).index("tenant")
_POSITION = "event_id uuid, log_topic text, log_partition int, log_offset bigint"
_EVIDENCE = "id uuid, chunk_id uuid, char_start int, char_end int"


DERIVED_TABLES: Mapping[type[Row], DerivedTable] = {
    TextRow: DerivedTable(
        "revision_texts",
        0,
        "title text, language text, media_type text, content_sha256 text, text_sha256 text, "
        "characters int, pages int, markdown text, blob jsonb, warnings jsonb, document_date date, "
        f"how text, {_POSITION}",
    ),
    ParentRow: DerivedTable(
        "parent_chunks",
        1,
        "id uuid, ordinal int, text text, section text, char_start int, char_end int, "
        "pages int[], tokens int",
    ),
    ChildRow: DerivedTable(
        "child_chunks",
        1,
        "id uuid, parent_id uuid, ordinal int, kind text, text text, prefix text, char_start int, "
        "char_end int, spans jsonb, tokens int, language text, cfg regconfig",
    ),
    VectorRow: DerivedTable(
        "chunk_vectors",
        1,
        "chunk_id uuid, embedding halfvec, background_dense real, background_maxsim real",
    ),
    TokenStateRow: DerivedTable(
        "chunk_states", 1, "chunk_id uuid, blob_key text, blob_offset int, blob_length int"
    ),
    PartCompletedRow: DerivedTable(
        "revision_parts", 2, f"kind text, part int, parts int, {_POSITION}"
    ),
    MentionRow: DerivedTable(
        "entity_mentions",
        1,
        f"{_EVIDENCE}, entity_id uuid, written_id uuid, entity_type text, type text, key text, "
        "name text",
    ),
    RelationRow: DerivedTable(
        "relations",
        1,
        f"{_EVIDENCE}, subject_id uuid, written_subject_id uuid, type text, object_id uuid, "
        "written_object_id uuid, weight real, extractor text",
    ),
    ClaimRow: DerivedTable(
        "claims",
        1,
        f"{_EVIDENCE}, subject_id uuid, written_subject_id uuid, property text, value text",
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
