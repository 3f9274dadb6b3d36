"""How long things have been waiting, and when they began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


async def fetch_received_times(pool: Pool, events: Sequence[UUID]) -> Mapping[UUID, datetime]:
    """By the internal id of the event; those that no revision came of are left out."""
    with translate_database_errors():
        return {row["accepted_id"]: row["received_at"] for row in await pool.fetch(load_query("received_times"), events)}


async def fetch_oldest_unread_time(pool: Pool, reader: str, topic: str) -> datetime | None:
    """On the Postgres log: when the first record was appended that the reader has still to finish."""
    with translate_database_errors():
        appended_at: datetime | None = await pool.fetchval(load_query("oldest_unread_time"), reader, topic)
    return appended_at
