"""What has changed in the index of a tenant since it was looked at."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from schemas.ports.search import Standing
from sql.errors import database_errors
from sql.pool import Connection, Pool
from sql.statements import statement

EVERY_GENERATION = ""
KEPT_S = 3600.0
"""Longer than any answer is."""


async def note_change(connection: Connection, generation: str, tenants: Iterable[str]) -> None:
    """In the transaction that makes it: from its commit on no answer of before stands."""
    await connection.execute("insert into index_changes (generation, tenant) select $1, unnest($2::text[])", generation, sorted(set(tenants)))


async def forget_foreign_changes(pool: Pool) -> None:
    """Those that came in a dump and bear transactions that this server has yet to come to: no look is ever after one, so nothing would be kept of their tenants."""
    with database_errors():
        await pool.execute("delete from index_changes where xact >= pg_snapshot_xmax(pg_current_snapshot())")


class PgIndexChanges:
    """See `schemas.ports.search.IndexChanges`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def unchanged(self, standings: Sequence[Standing]) -> list[bool]:
        columns = zip(*((one.tenant, one.generation, one.state) for one in standings), strict=True)
        with database_errors():
            return [row["unchanged"] for row in await self._pool.fetch(statement("unchanged"), *map(list, columns))] if standings else []


class PrunedChanges:
    """Removes what no answer is compared with any more. A change is as old as the end of its transaction, however long that took: so what is removed had ended
    when one of the looks of an hour ago was taken."""

    def __init__(self, pool: Pool, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._clock = pool, clock
        self._looks: deque[tuple[float, int]] = deque()

    async def once(self) -> None:
        with database_errors():
            self._looks.append((self._clock(), await self._pool.fetchval("select pg_snapshot_xmin(pg_current_snapshot())")))
            if (below := self._passed()) is not None:
                await self._pool.execute("delete from index_changes where xact < $1::xid8", below)

    def _passed(self) -> int | None:
        """Below which everything had ended at the last look that is old enough."""
        passed = None
        while self._looks and self._looks[0][0] <= self._clock() - KEPT_S:
            passed = self._looks.popleft()[1]
        return passed
