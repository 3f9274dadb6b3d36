"""What has changed in the index of a tenant since it was looked at."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from schemas.ports.search import SnapshotVersion
from sql.errors import translate_database_errors
from sql.pool import Connection, Pool
from sql.query_loader import load_query

ALL_GENERATIONS = ""
CHANGE_RETENTION_S = 3600.0
"""Longer than any answer is."""


async def record_index_change(connection: Connection, generation: str, tenants: Iterable[str]) -> None:
    """In the transaction that makes it: from its commit on no answer of before stands."""
    await connection.execute("insert into index_changes (generation, tenant) select $1, unnest($2::text[])", generation, sorted(set(tenants)))


async def delete_foreign_changes(pool: Pool) -> None:
    """Those that came in a dump and bear transactions that this server has yet to come to: no look is ever after one, so nothing would be kept of their tenants."""
    with translate_database_errors():
        await pool.execute("delete from index_changes where xact >= pg_snapshot_xmax(pg_current_snapshot())")


class PgIndexChanges:
    """See `schemas.ports.search.IndexChanges`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def check_unchanged(self, versions: Sequence[SnapshotVersion]) -> list[bool]:
        columns = zip(*((version.tenant, version.generation, version.state) for version in versions), strict=True)
        with translate_database_errors():
            return [row["unchanged"] for row in await self._pool.fetch(load_query("unchanged_versions"), *map(list, columns))] if versions else []


class IndexChangePruner:
    """Removes what no answer is compared with any more. A change is as old as the end of its transaction, however long that took: so what is removed had ended
    when one of the looks of an hour ago was taken."""

    def __init__(self, pool: Pool, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._clock = pool, clock
        self._looks: deque[tuple[float, int]] = deque()

    async def prune(self) -> None:
        with translate_database_errors():
            self._looks.append((self._clock(), await self._pool.fetchval("select pg_snapshot_xmin(pg_current_snapshot())")))
            if (min_xid := self._find_prunable_xid()) is not None:
                await self._pool.execute("delete from index_changes where xact < $1::xid8", min_xid)

    def _find_prunable_xid(self) -> int | None:
        """Below which everything had ended at the last look that is old enough."""
        prunable_xid = None
        while self._looks and self._looks[0][0] <= self._clock() - CHANGE_RETENTION_S:
            prunable_xid = self._looks.popleft()[1]
        return prunable_xid
