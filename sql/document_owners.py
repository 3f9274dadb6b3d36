"""Store which source owns each document. Ingress decides by it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


class PgDocumentOwners:
    """Implements `schemas.ports.stage_ports.DocumentOwners`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_owner(self, tenant: str, document_id: UUID) -> str | None:
        with translate_database_errors():
            source: str | None = await self._pool.fetchval(
                load_query("document_owner"), tenant, document_id
            )
        return source

    async def claim_ownership(
        self, tenant: str, document_id: UUID, source: str, allowed: Collection[str]
    ) -> str:
        with translate_database_errors():
            owner: str = await self._pool.fetchval(
                load_query("claim_document_owner"), tenant, document_id, source, list(allowed)
            )
        return owner


async def restore_owners(pool: Pool, owners: Mapping[UUID, tuple[str, str]]) -> None:
    """Restore owners after a rebuild: document → tenant and source of its newest accepted revision."""
    columns = (
        list(owners),
        [tenant for tenant, _ in owners.values()],
        [source for _, source in owners.values()],
    )
    with translate_database_errors():
        await pool.execute(load_query("restore_owners"), *columns)
