"""Read generations in the shape of the HTTP API."""

from __future__ import annotations

from typing import Any

from sql.derived_tables import PARTITIONED_TABLES
from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


class PgGenerationSummaries:
    """Generation summaries over Postgres. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_summaries(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Return generations that are not dropped, oldest first, with their documents, chunks and
        bytes.

        With a tenant, documents and chunks are the tenant's; bytes and build concern all tenants
        and are null.
        """
        return await self._fetch_summaries(None, tenant)

    async def get_summary(self, name: str, tenant: str | None = None) -> dict[str, Any] | None:
        """Return the summary of a generation, even if it is dropped."""
        return next(iter(await self._fetch_summaries(name, tenant)), None)

    async def fetch_bytes(self, name: str) -> int:
        summary = await self.get_summary(name)
        return int(summary["bytes"]) if summary else 0

    async def _fetch_summaries(self, name: str | None, tenant: str | None) -> list[dict[str, Any]]:
        with translate_database_errors():
            return [
                dict(row)
                for row in await self._pool.fetch(
                    load_query("generation_summaries"), name, list(PARTITIONED_TABLES), tenant
                )
            ]
