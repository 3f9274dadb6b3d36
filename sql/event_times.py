"""Read when events were received."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


async def fetch_received_times(pool: Pool, events: Sequence[UUID]) -> Mapping[UUID, datetime]:
    """Return event id → received time, for events that became a revision."""
    with translate_database_errors():
        return {
            row["accepted_id"]: row["received_at"]
            for row in await pool.fetch(load_query("received_times"), events)
        }


async def fetch_oldest_unread_time(pool: Pool, reader: str, topic: str) -> datetime | None:
    """Return when the reader's first unfinished record was appended to the Postgres log; None if
    none.
    """
    with translate_database_errors():
        appended_at: datetime | None = await pool.fetchval(
            load_query("oldest_unread_time"), reader, topic
        )
    return appended_at
