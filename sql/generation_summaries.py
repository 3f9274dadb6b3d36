"""Generations as people are told of them."""

from __future__ import annotations

from typing import Any

from sql.derived_tables import PARTITIONED_TABLES
from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


class PgGenerationSummaries:
    """Every call may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_summaries(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Those that are not dropped, the oldest first, with the documents and chunks that each shows and the bytes that it takes.

        With a tenant: what it has of them. Bytes and build concern all tenants, and are null."""
        return await self._fetch_summaries(None, tenant)

    async def get_summary(self, name: str, tenant: str | None = None) -> dict[str, Any] | None:
        """Also one that was dropped."""
        return next(iter(await self._fetch_summaries(name, tenant)), None)

    async def fetch_bytes(self, name: str) -> int:
        summary = await self.get_summary(name)
        return int(summary["bytes"]) if summary else 0

    async def _fetch_summaries(self, name: str | None, tenant: str | None) -> list[dict[str, Any]]:
        with translate_database_errors():
            return [dict(row) for row in await self._pool.fetch(load_query("generation_summaries"), name, list(PARTITIONED_TABLES), tenant)]
