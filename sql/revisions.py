"""The newest revision of a document, as the tables know it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from schemas.ports.bundle import Latest, Shown
from schemas.rows import OrderKey
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement
from sql.storable import array_text


class PgRevisions:
    """Implements `LatestRevisions` and `Switches`. A document that the API has let in counts as known before any table has its revision."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    async def latest(self, tenant: str, document_id: UUID) -> Latest | None:
        with database_errors():
            row = await self.pool.fetchrow(statement("latest_revision"), tenant, document_id)
        return Latest(row["numbered"], row["external_id"], tuple(row["latest"]) if row["latest"] else None) if row else None

    async def shown(self, generation: str, previous: str) -> list[Shown]:
        """As `Switches`."""
        with database_errors():
            return [Shown(**dict(row)) for row in await self.pool.fetch(statement("shown_by_switch"), generation, previous)]

    async def repeated(self, revisions: Sequence[tuple[UUID, OrderKey]]) -> set[tuple[UUID, OrderKey]]:
        """Those that say only what the generation that answers shows already."""
        documents, orders = [document for document, _ in revisions], [array_text(order) or "" for _, order in revisions]
        with database_errors():
            rows = await self.pool.fetch(statement("repeated_revisions"), documents, orders)
        return {(row["document_id"], tuple(row["ord"])) for row in rows}
