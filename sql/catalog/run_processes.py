"""Find the runs of processes that ended, by a lock that each process holds while it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from uuid import UUID

from schemas.run_records import OrphanedRun
from sql.advisory_locks import hold_session_lock
from sql.pool import Pool, fetch_rows


class PgRunProcesses:
    """Sessions of the processes that answer runs. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool, dsn: str) -> None:
        self._pool, self._dsn = pool, dsn

    def open_session(self, process_id: UUID) -> AbstractAsyncContextManager[asyncio.Event]:
        """Mark the process as alive while the context is open; yield an event that is set when
        the connection is lost.
        """
        return hold_session_lock(self._dsn, f"anabranch runs {process_id}")

    async def find_ended(self) -> set[UUID]:
        """Return the processes that have open runs and no session."""
        rows = await fetch_rows(self._pool, "ended_run_processes")
        return {row["process_id"] for row in rows}

    async def claim_runs(self, ended: Iterable[UUID], claimed_by: UUID) -> list[OrphanedRun]:
        """Make a process the owner of the open runs of ended ones, and return these runs.

        If that process ends before it reports them, they are found again.
        """
        rows = await fetch_rows(self._pool, "claim_orphaned_runs", list(ended), claimed_by)
        return [OrphanedRun(**row) for row in rows]
