"""Store jobs: one per event that the API has admitted. Operational state, not a projection."""

from __future__ import annotations

from uuid import UUID

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


class PgJobs:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def open(
        self,
        *,
        job_id: UUID,
        tenant: str,
        document_id: UUID,
        event_id: str,
        source: str,
        external_id: str | None,
        asked_by: str | None,
    ) -> None:
        """Open a job. Opening it again has no effect."""
        with translate_database_errors():
            await self._pool.execute(
                load_query("open_job"),
                job_id,
                tenant,
                document_id,
                event_id,
                source,
                external_id,
                asked_by,
            )
