"""List collections, runs and dead letters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

from schemas.principals import Principal
from sql.errors import translate_database_errors
from sql.page_cursor import format_cursor, parse_cursor
from sql.pool import Pool
from sql.query_loader import load_query

Body = dict[str, Any]


class PgListings:
    """Read-only lists. Every method may raise DatabaseUnavailable.

    Paged methods raise InvalidRequest if `after` is not a cursor of the list.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def list_collections(self, caller: Principal) -> list[Body]:
        """Return collections with their searchable documents.

        Documents without a collection come last, under null.
        """
        return [
            dict(row) for row in await self._fetch("collections", caller.tenant, caller.readers)
        ]

    async def list_runs(
        self, caller: Principal, *, after: str | None, limit: int
    ) -> tuple[list[Body], str | None]:
        """Return a page of runs, newest first and without candidates, and the next cursor.

        A caller with limited access sees only its own runs.
        """
        rows = await self._fetch(
            "runs", caller.tenant, *parse_cursor(after), limit + 1, _restrict_to_caller(caller)
        )
        page = [dict(row) for row in rows[:limit]]
        last = rows[limit - 1] if len(rows) > limit else None
        return page, format_cursor(
            last["received_at"] or last["answered_at"], last["run_id"]
        ) if last else None

    async def get_run(self, caller: Principal, run_id: UUID) -> Body | None:
        rows = await self._fetch("run", caller.tenant, run_id, _restrict_to_caller(caller))
        return dict(rows[0]) if rows else None

    async def list_dead_letters(
        self, tenant: str, *, stage: str | None, after: str | None, limit: int
    ) -> tuple[list[Body], str | None]:
        """Return a page of dead letters, newest first, and the next cursor."""
        rows = await self._fetch("dead_letters", tenant, stage, *parse_cursor(after), limit + 1)
        last = rows[limit - 1] if len(rows) > limit else None
        return [dict(row) for row in rows[:limit]], format_cursor(
            last["dead_lettered_at"], last["event_id"]
        ) if last else None

    async def count_dead_letters(self, tenant: str | None) -> dict[str, int]:
        """Return stage → number of dead letters, of one tenant or of all."""
        return {
            row["stage"]: row["events"] for row in await self._fetch("dead_letter_counts", tenant)
        }

    async def _fetch(self, name: str, *parameters: Any) -> list[asyncpg.Record]:
        with translate_database_errors():
            return list(await self._pool.fetch(load_query(name), *parameters))


def _restrict_to_caller(caller: Principal) -> str | None:
    return None if caller.readers is None else caller.id
