"""By which source each document came: what ingress decides from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement


class PgOwners:
    """Implements `schemas.ports.bundle.Owners`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def owner(self, tenant: str, document_id: UUID) -> str | None:
        with database_errors():
            found: str | None = await self._pool.fetchval(statement("document_owner"), tenant, document_id)
        return found

    async def own(self, tenant: str, document_id: UUID, source: str, allowed: Collection[str]) -> str:
        with database_errors():
            owner: str = await self._pool.fetchval(statement("own_document"), tenant, document_id, source, list(allowed))
        return owner


async def restore_owners(pool: Pool, owners: Mapping[UUID, tuple[str, str]]) -> None:
    """Document → tenant and source of its newest accepted revision, as the log tells them."""
    columns = (list(owners), [tenant for tenant, _ in owners.values()], [source for _, source in owners.values()])
    with database_errors():
        await pool.execute(statement("restore_owners"), *columns)
