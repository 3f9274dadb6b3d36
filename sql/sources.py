"""Read declared sources and their status."""

from __future__ import annotations

from typing import Any

import asyncpg

from schemas.sources import DeclaredSource, SequenceReset, SourceSpec
from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


class PgSources:
    """Implements `schemas.ports.sources.DeclaredSources`. Every method may raise
    DatabaseUnavailable.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_sources(self) -> list[DeclaredSource]:
        rows = await self._fetch(load_query("declared_sources"))
        return [_parse_declared_source(row) for row in rows]

    async def fetch_epochs(self) -> dict[str, int]:
        """Return ce_source → epoch, for sources that were reset at least once."""
        return {
            row["ce_source"]: row["epoch"] for row in await self._fetch(load_query("source_epochs"))
        }

    async def fetch_external_ids(self, ce_source: str, after: str, limit: int) -> list[str]:
        return [
            row["external_id"]
            for row in await self._fetch(load_query("source_documents"), ce_source, after, limit)
        ]

    async def list_overview(self) -> list[dict[str, Any]]:
        """Return every source with its document counts and the state of its reader."""
        return [dict(row) for row in await self._fetch(load_query("source_overview"))]

    async def has_numbered_documents(self, ce_source: str) -> bool:
        """Whether any document comes from a source of this name that numbers its changes."""
        return bool(await self._fetch(load_query("has_numbered_documents"), ce_source))

    async def _fetch(self, text: str, *parameters: Any) -> list[asyncpg.Record]:
        with translate_database_errors():
            return list(await self._pool.fetch(text, *parameters))


def _parse_declared_source(row: asyncpg.Record) -> DeclaredSource:
    return DeclaredSource(
        spec=SourceSpec.model_validate(row["spec"]),
        epoch=row["epoch"],
        resets=tuple(SequenceReset.model_validate(reset) for reset in row["resets"]),
        removed=row["removed"],
        withdraw=row["withdraw"],
    )
