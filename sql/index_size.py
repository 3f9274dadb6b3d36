"""How much a generation shows."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from schemas.records import Position
from schemas.rows import OrderKey
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement


@dataclass(frozen=True, slots=True)
class IndexSize:
    """`passages` and `texts` are the different ones of each document's parents and chunks; bytes are those of tables with their indexes."""

    documents: int
    parts: int
    passages: int
    texts: int
    tokens: int
    other_bytes: int
    vector_bytes: int


async def index_size(pool: Pool, generation: str) -> IndexSize:
    with database_errors():
        [row] = await pool.fetch(statement("index_size"), generation)
    return IndexSize(**dict(row))


async def visible_orders(pool: Pool, generation: str) -> dict[UUID, OrderKey]:
    with database_errors():
        rows = await pool.fetch("select document_id, ord from visible where generation = $1", generation)
    return {row["document_id"]: tuple(row["ord"]) for row in rows}


async def first_needed(pool: Pool, generation: str, read_by: str | None = None) -> list[Position]:
    """The first event of each partition that what the generation shows was made from; with `read_by`, of those that this generation has not read."""
    with database_errors():
        rows = await pool.fetch(statement("first_needed"), generation, read_by)
    return [Position(row["topic"], row["partition"], row["first"]) for row in rows]
