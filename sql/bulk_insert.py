"""Insert rows into a generation's derived tables in bulk. Inserting the same row again has no
effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pgvector import HalfVector

from schemas.events import Event
from schemas.ports.ledger import ProjectedEvent
from schemas.rows import Row
from sql.derived_tables import DERIVED_TABLES, OWNER_COLUMNS, DerivedTable, RowValues
from sql.encoding import encode_json_text, format_array
from sql.pool import Connection

COPY_MIN_ROWS = 40
"""Fewest rows for which COPY is faster than an insert."""


async def copy_rows(
    connection: Connection, generation: str, events: Sequence[ProjectedEvent]
) -> None:
    """Insert rows with COPY, or with an insert if there are few.

    Raises UniqueViolationError if a row exists (a redelivered part after its claim was pruned):
    roll back and use `insert_rows`.
    """
    for kind, rows in _group_rows(generation, events).items():
        table = DERIVED_TABLES[kind]
        if len(rows) < COPY_MIN_ROWS:
            await _insert_into_table(connection, table, rows)
            continue
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
    """Insert rows one statement per table, keeping existing rows. Slower than `copy_rows`."""
    for kind, rows in _group_rows(generation, events).items():
        await _insert_into_table(connection, DERIVED_TABLES[kind], rows)


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
                values = _to_values(generation, row, event.event)
                rows_by_kind[type(row)].setdefault(
                    _extract_key(DERIVED_TABLES[type(row)], values), values
                )
    return {kind: list(rows.values()) for kind, rows in rows_by_kind.items() if rows}


def _to_values(generation: str, row: Any, event: Event[Any]) -> RowValues:
    return (
        generation,
        row.document_id,
        list(row.order),
        row.tenant,
        *DERIVED_TABLES[type(row)].to_values(row, event),
    )


def _extract_key(table: DerivedTable, values: RowValues) -> RowValues:
    return (
        values[1],
        tuple(values[2]),
        *values[len(OWNER_COLUMNS) : len(OWNER_COLUMNS) + table.n_keys],
    )


async def _insert_into_table(
    connection: Connection, table: DerivedTable, rows: Sequence[RowValues]
) -> None:
    types = {**OWNER_COLUMNS, **table.columns}
    parameters = ", ".join(
        f"${n}::{'text' if _is_passed_as_text(kind) else kind}[]"
        for n, kind in enumerate(types.values(), 1)
    )
    selected = ", ".join(f"{name}::{kind}" for name, kind in types.items())
    names = ", ".join(types)
    columns = [
        [_to_literal(kind, value) for value in column]
        for kind, column in zip(types.values(), zip(*rows, strict=True), strict=True)
    ]
    # Ordered: concurrent inserts of the same rows wait for each other and must do so in the same
    # order.
    await connection.execute(
        f"insert into {table.name} ({names}) select {selected} from unnest({parameters}) r ({names}) order by document_id, ord on conflict do nothing",
        *columns,
    )


def _is_passed_as_text(kind: str) -> bool:
    # asyncpg cannot encode arrays of these types, so their elements are passed as text and cast.
    return kind.endswith("[]") or kind in ("jsonb", "halfvec", "regconfig")


def _to_literal(kind: str, value: Any) -> Any:
    if value is None or not _is_passed_as_text(kind) or kind == "regconfig":
        return value
    if kind == "jsonb":
        return encode_json_text(value)
    return format_array(value) if kind.endswith("[]") else HalfVector(value).to_text()
