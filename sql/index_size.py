"""Measure a generation and locate the events that it was built from."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from schemas.records import Position
from schemas.rows import OrderKey
from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


@dataclass(frozen=True, slots=True)
class IndexSize:
    """The size of a generation.

    `passages` and `texts` count the distinct parents and chunks of each document. Bytes include
    indexes.
    """

    documents: int
    parts: int
    passages: int
    texts: int
    tokens: int
    other_bytes: int
    vector_bytes: int


async def measure_index(pool: Pool, generation: str) -> IndexSize:
    with translate_database_errors():
        [row] = await pool.fetch(load_query("index_size"), generation)
    return IndexSize(**dict(row))


async def fetch_visible_orders(pool: Pool, generation: str) -> dict[UUID, OrderKey]:
    with translate_database_errors():
        rows = await pool.fetch(load_query("visible_orders_of_generation"), generation)
    return {row["document_id"]: tuple(row["ord"]) for row in rows}


async def fetch_first_needed_positions(
    pool: Pool, generation: str, unread_by: str | None = None
) -> list[Position]:
    """Return, per partition, the first event that the generation's visible revisions were made from.

    With `unread_by`, only of revisions that this generation has not read.
    """
    with translate_database_errors():
        rows = await pool.fetch(load_query("first_needed"), generation, unread_by)
    return [Position(row["topic"], row["partition"], row["first"]) for row in rows]
