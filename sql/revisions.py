"""The newest revision of a document, as the tables know it."""

from __future__ import annotations

from uuid import UUID

from schemas.ports.bundle import Latest
from sql.errors import database_errors
from sql.pool import Pool


class PgRevisions:
    """Implements `LatestRevisions`."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def latest(self, tenant: str, document_id: UUID) -> Latest | None:
        with database_errors():
            row = await self.pool.fetchrow(
                "select numbered, external_id, latest from documents where tenant = $1 and id = $2 and latest is not null", tenant, document_id
            )
        return Latest(row["numbered"], row["external_id"], tuple(row["latest"])) if row else None
