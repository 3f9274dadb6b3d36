"""Generations as people are told of them."""

from __future__ import annotations

from typing import Any

from sql.derived_tables import PARTITIONED
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement


class PgGenerationsTold:
    """Every call may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def all(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Those that are not dropped, the oldest first, with the documents and chunks that each shows and the bytes that it takes.

        With a tenant: what it has of them. Bytes and build concern all tenants, and are null."""
        return await self._told(None, tenant)

    async def one(self, name: str, tenant: str | None = None) -> dict[str, Any] | None:
        """Also one that was dropped."""
        return next(iter(await self._told(name, tenant)), None)

    async def bytes_of(self, name: str) -> int:
        found = await self.one(name)
        return int(found["bytes"]) if found else 0

    async def _told(self, name: str | None, tenant: str | None) -> list[dict[str, Any]]:
        with database_errors():
            return [dict(row) for row in await self._pool.fetch(statement("generations_told"), name, list(PARTITIONED), tenant)]
