"""Record index changes per tenant, so that cached answers can be invalidated."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from schemas.ports.search import SnapshotVersion
from sql.database import Connection, PgStore, Pool, execute, fetch_value, load_query, read_columns

ALL_GENERATIONS = ""
CHANGE_RETENTION_S = 3600.0
"""Must exceed the lifetime of a cached answer."""


async def record_index_change(
    connection: Connection, generation: str, tenants: Iterable[str]
) -> None:
    """Record a change in the transaction that makes it.

    Cached answers of these tenants are invalid once that transaction commits.
    """
    await connection.execute(load_query("record_index_change"), generation, sorted(set(tenants)))


async def delete_foreign_changes(pool: Pool) -> None:
    """Delete changes with transaction ids that this server has not reached, which come from a
    restored dump.

    No snapshot would ever be later than them, so nothing of their tenants could be cached.
    """
    await execute(pool, "delete_foreign_changes")


class PgIndexChanges(PgStore):
    """Implements `schemas.ports.search.IndexChanges`."""

    async def check_unchanged(self, versions: Sequence[SnapshotVersion]) -> list[bool]:
        columns = read_columns(versions, "tenant", "generation", "state")
        return await self._fetch_column("unchanged_versions", *columns) if versions else []


class IndexChangePruner:
    """Deletes changes that no cached answer is compared with.

    A change takes effect when its transaction ends, however long that ran. Only changes below the
    oldest running transaction of an hour ago are therefore deleted.
    """

    def __init__(self, pool: Pool, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._clock = pool, clock
        self._horizons: deque[tuple[float, int]] = deque()

    async def prune(self) -> None:
        self._horizons.append((self._clock(), await fetch_value(self._pool, "snapshot_horizon")))
        min_xid = None
        # Observations are in order of time, so the newest that is old enough wins.
        while self._horizons and self._horizons[0][0] <= self._clock() - CHANGE_RETENTION_S:
            min_xid = self._horizons.popleft()[1]
        if min_xid is not None:
            await execute(self._pool, "delete_index_changes", min_xid)
