"""Lists that are only read: collections, runs, dead letters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

from schemas.principals import Principal
from sql.cursor import cursor, read_cursor
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement

Body = dict[str, Any]


class PgRecords:
    """Every call may raise DatabaseUnavailable, and InvalidRequest for an `after` that is not ours."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def collections(self, caller: Principal) -> list[Body]:
        """Documents that answer, by collection; those outside any come under null, last."""
        return [dict(row) for row in await self._fetch("collections", caller.tenant, caller.readers)]

    async def runs(self, caller: Principal, *, after: str | None, limit: int) -> tuple[list[Body], str | None]:
        """The latest first, without their candidates. A caller that is limited to readers sees its own."""
        rows = await self._fetch("runs", caller.tenant, *read_cursor(after), limit + 1, _only_of(caller))
        page = [dict(row) for row in rows[:limit]]
        last = rows[limit - 1] if len(rows) > limit else None
        return page, cursor(last["received_at"] or last["answered_at"], last["run_id"]) if last else None

    async def run(self, caller: Principal, run_id: UUID) -> Body | None:
        rows = await self._fetch("run", caller.tenant, run_id, _only_of(caller))
        return dict(rows[0]) if rows else None

    async def dead_letters(self, tenant: str, *, stage: str | None, after: str | None, limit: int) -> tuple[list[Body], str | None]:
        """The latest first."""
        rows = await self._fetch("dead_letters", tenant, stage, *read_cursor(after), limit + 1)
        last = rows[limit - 1] if len(rows) > limit else None
        return [dict(row) for row in rows[:limit]], cursor(last["buried_at"], last["event_id"]) if last else None

    async def dead_letter_counts(self, tenant: str | None) -> dict[str, int]:
        """Stage → dead letters, of a tenant or of all."""
        return {row["stage"]: row["events"] for row in await self._fetch("dead_letter_counts", tenant)}

    async def _fetch(self, name: str, *parameters: Any) -> list[asyncpg.Record]:
        with database_errors():
            return list(await self._pool.fetch(statement(name), *parameters))


def _only_of(caller: Principal) -> str | None:
    return None if caller.readers is None else caller.id
