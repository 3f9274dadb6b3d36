"""Read generations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from schemas.amendments import OrderKey
from schemas.errors import InvalidRequest, NotFound, TransientError
from schemas.generations import Generation
from schemas.records import Position
from sql.index.derived_tables import PARTITIONED_TABLES
from sql.pool import Pool, fetch_rows


class PgGenerations:
    """Generations over the table `generations`. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_live(self) -> Generation | None:
        return _parse_first(await fetch_rows(self._pool, "live_generation"))

    async def fetch(self, name: str) -> Generation | None:
        return _parse_first(await fetch_rows(self._pool, "generation", name))

    async def fetch_undropped(self) -> list[Generation]:
        return [
            Generation.model_validate(dict(row))
            for row in await fetch_rows(self._pool, "undropped_generations")
        ]

    async def list_names(self) -> list[str]:
        """Return the names of all generations, including dropped ones."""
        return [row["name"] for row in await fetch_rows(self._pool, "generation_names")]


def no_live_generation_error() -> TransientError:
    return TransientError(
        "No generation is live yet.",
        code="NO_GENERATION",
        remedy="Wait for the first worker to start, or run `anabranch worker`.",
    )


def unknown_generation_error(name: str) -> NotFound:
    return NotFound(
        f"Unknown generation {name!r}.",
        code="NO_SUCH_GENERATION",
        remedy="Run `anabranch generations list` to list them.",
    )


def generation_not_built_error(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"Generation {name!r} is still being built.",
        code="GENERATION_NOT_BUILT",
        remedy=f"Run `anabranch generations show {name}` to see its progress.",
    )


def _parse_first(rows: list[asyncpg.Record]) -> Generation | None:
    return Generation.model_validate(dict(rows[0])) if rows else None


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
        return [
            dict(row)
            for row in await fetch_rows(
                self._pool, "generation_summaries", name, list(PARTITIONED_TABLES), tenant
            )
        ]


@dataclass(frozen=True, slots=True)
class IndexSize:
    """The size of a generation.

    `passages` and `texts` count the distinct parents and chunks of each document. Bytes include
    indexes.
    """

    documents: int
    parts: int
    passages: int
    texts: int
    tokens: int
    other_bytes: int
    vector_bytes: int


async def measure_index(pool: Pool, generation: str) -> IndexSize:
    [row] = await fetch_rows(pool, "index_size", generation)
    return IndexSize(**dict(row))


async def fetch_visible_orders(pool: Pool, generation: str) -> dict[UUID, OrderKey]:
    rows = await fetch_rows(pool, "visible_orders_of_generation", generation)
    return {row["document_id"]: tuple(row["ord"]) for row in rows}


async def fetch_first_needed_positions(
    pool: Pool, generation: str, unread_by: str | None = None
) -> list[Position]:
    """Return, per partition, the first event that the generation's visible revisions were made
    from.

    With `unread_by`, only of revisions that this generation has not read.
    """
    rows = await fetch_rows(pool, "first_needed", generation, unread_by)
    return [Position(row["topic"], row["partition"], row["first"]) for row in rows]
