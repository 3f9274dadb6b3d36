"""List what each stage did with a document."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from schemas.principals import Principal
from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


class PgDocumentEvents:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_document_events(
        self, caller: Principal, document_id: UUID, *, after: int, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return the stage events of a document in chronological order, and the next offset.

        Keys: `revision, generation, stage, part, state, attempts, topic, partition, offset,
        started_at, duration_ms, error`. The list is empty for an unknown document. Raises
        DatabaseUnavailable.
        """
        with translate_database_errors():
            rows = await self._pool.fetch(
                load_query("document_events"),
                caller.tenant,
                document_id,
                after,
                limit + 1,
                caller.readers,
            )
        return [dict(row) for row in rows[:limit]], after + limit if len(rows) > limit else None
