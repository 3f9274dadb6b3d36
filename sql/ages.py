"""How long things have been waiting, and when they began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement


async def received_at(pool: Pool, events: Sequence[UUID]) -> Mapping[UUID, datetime]:
    """By the internal id of the event; those that no revision came of are left out."""
    with database_errors():
        return {row["accepted_id"]: row["received_at"] for row in await pool.fetch(statement("received_at"), events)}


async def oldest_waiting(pool: Pool, reader: str, topic: str) -> datetime | None:
    """On the Postgres log: when the first record was appended that the reader has still to finish."""
    with database_errors():
        moment: datetime | None = await pool.fetchval(statement("oldest_waiting"), reader, topic)
    return moment
