"""Read generations."""

from __future__ import annotations

from typing import Any

import asyncpg

from schemas.errors import InvalidRequest, NotFound, TransientError
from schemas.generations import Generation
from sql.errors import translate_database_errors
from sql.pool import Pool
from sql.query_loader import load_query


class PgGenerations:
    """Generations over the table `generations`. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_live(self) -> Generation | None:
        return _parse_first(await self._fetch(load_query("live_generation")))

    async def fetch(self, name: str) -> Generation | None:
        return _parse_first(await self._fetch(load_query("generation"), name))

    async def fetch_undropped(self) -> list[Generation]:
        return [
            Generation.model_validate(dict(row))
            for row in await self._fetch(load_query("undropped_generations"))
        ]

    async def list_names(self) -> list[str]:
        """Return the names of all generations, including dropped ones."""
        return [row["name"] for row in await self._fetch(load_query("generation_names"))]

    async def _fetch(self, query: str, *parameters: Any) -> list[asyncpg.Record]:
        with translate_database_errors():
            return list(await self._pool.fetch(query, *parameters))


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
