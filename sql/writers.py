"""Rows into a generation's derived tables, many at a time. Writing a row again changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pgvector import HalfVector

from schemas.events import Fact
from schemas.ports.ledger import Projected
from schemas.rows import Row
from sql.derived_tables import OWNER, TABLES, Table, Values
from sql.pool import Connection
from sql.storable import array_text, json_text

COPY_FROM = 40
"""From so many rows on COPY is quicker than an insert."""


async def copy_rows(connection: Connection, generation: str, events: Sequence[Projected]) -> None:
    """Raises UniqueViolationError where rows are there already (a part that is repeated, claims that were forgotten): then roll back and insert them."""
    for kind, rows in _grouped(generation, events).items():
        if len(rows) >= COPY_FROM:
            await _copy(connection, f"{TABLES[kind].name}_{generation}", TABLES[kind], rows)
        else:
            await _insert(connection, TABLES[kind], rows)


async def insert_rows(connection: Connection, generation: str, events: Sequence[Projected]) -> None:
    """The slow way; rows that are there already stay as they are."""
    for kind, rows in _grouped(generation, events).items():
        await _insert(connection, TABLES[kind], rows)


def _grouped(generation: str, events: Iterable[Projected]) -> dict[type[Row], list[Values]]:
    """Values by kind of row, in the tables' order, each row once."""
    found: dict[type[Row], dict[Values, Values]] = {kind: {} for kind in TABLES}
    for event in events:
        for row in event.rows:
            if type(row) in found:
                values = _values(generation, row, event.fact)
                found[type(row)].setdefault(_key(TABLES[type(row)], values), values)
    return {kind: list(rows.values()) for kind, rows in found.items() if rows}


def _values(generation: str, row: Any, fact: Fact[Any]) -> Values:
    return (generation, row.document_id, list(row.order), row.tenant, *TABLES[type(row)].values(row, fact))


def _key(table: Table, values: Values) -> Values:
    return (values[1], tuple(values[2]), *values[len(OWNER) : len(OWNER) + table.keys])


async def _copy(connection: Connection, partition: str, table: Table, rows: Sequence[Values]) -> None:
    """Straight into the partition."""
    await connection.copy_records_to_table(partition, schema_name="anabranch", records=rows, columns=[*OWNER, *table.columns])


async def _insert(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    types = {**OWNER, **table.columns}
    parameters = ", ".join(f"${n}::{'text' if _as_text(kind) else kind}[]" for n, kind in enumerate(types.values(), 1))
    selected = ", ".join(f"{name}::{kind}" for name, kind in types.items())
    names = ", ".join(types)
    columns = [[_literal(kind, value) for value in column] for kind, column in zip(types.values(), zip(*rows, strict=True), strict=True)]
    await connection.execute(
        f"insert into {table.name} ({names}) select {selected} from unnest({parameters}) r ({names}) order by document_id, ord on conflict do nothing", *columns
    )


def _as_text(kind: str) -> bool:
    """Types that cannot be elements of an array parameter."""
    return kind.endswith("[]") or kind in ("jsonb", "halfvec", "regconfig")


def _literal(kind: str, value: Any) -> Any:
    if value is None or not _as_text(kind) or kind == "regconfig":
        return value
    if kind == "jsonb":
        return json_text(value)
    return array_text(value) if kind.endswith("[]") else HalfVector(value).to_text()
