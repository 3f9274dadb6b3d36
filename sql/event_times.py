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
