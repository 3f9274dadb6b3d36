"""Report the runs of processes that ended without reporting them, such as a killed one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import structlog

from schemas.errors import TransientError
from schemas.events import EventData, RunStopped
from services.background_tasks import run_in_background
from services.query.runs import PROCESS_ENDED, build_stopped
from sql.catalog.runs import PgRunProcesses

log = structlog.get_logger(__name__)
CHECK_S = 2.0
RECONNECT_S = 1.0
GRACE_S = 5.0
"""Time in which a process whose connection was lost connects again before it counts as ended."""


@dataclass(slots=True)
class OrphanedRunReporter:
    process_id: UUID
    processes: PgRunProcesses
    wait_until_projected: Callable[[], Awaitable[None]]
    """Returns when the tables reflect every event of the runs so far."""
    publish: Callable[[EventData], None]
    clock: Callable[[], datetime]
    connected: asyncio.Event = field(default_factory=asyncio.Event)

    async def hold_session(self) -> None:
        """Keep this process marked as alive until cancelled."""
        try:
            while True:
                try:
                    async with self.processes.open_session(self.process_id) as lost:
                        self.connected.set()
                        await lost.wait()
                except TransientError as error:
                    log.warning("run_session_postponed", code=error.code)
                await asyncio.sleep(RECONNECT_S)
        finally:
            # The start of the API waits for it; it then raises the error of this task.
            self.connected.set()

    async def watch(self) -> None:
        """Report orphaned runs until cancelled."""
        loop = asyncio.get_running_loop()
        missing_since: dict[UUID, float] = {}
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                missing_since = {
                    process: missing_since.get(process, loop.time())
                    for process in await self.processes.find_ended()
                }
                ended = [
                    process
                    for process, since in missing_since.items()
                    if loop.time() - since >= GRACE_S
                ]
                if ended:
                    await self._report(ended)
            except TransientError as error:
                # While the database is away, every process has lost its connection.
                missing_since = {}
                log.warning("orphaned_runs_unknown", code=error.code)

    async def _report(self, ended: list[UUID]) -> None:
        # A run may have been answered before its process ended, in events not yet projected.
        await self.wait_until_projected()
        for run in await self.processes.claim_runs(ended, self.process_id):
            log.warning("run_orphaned", run=str(run.run_id))
            stopped = build_stopped(PROCESS_ENDED, self.clock(), run.step)
            self.publish(RunStopped(run_id=run.run_id, tenant=run.tenant, **stopped.model_dump()))


@asynccontextmanager
async def open_orphaned_run_reporter(reporter: OrphanedRunReporter) -> AsyncIterator[None]:
    """Mark this process as alive, and report orphaned runs. Raises an error of the first session
    that is not transient.
    """
    async with run_in_background(reporter.hold_session(), reporter.watch()) as (session, _):
        # A run that starts before would count as orphaned.
        await reporter.connected.wait()
        if session.done():
            session.result()
        yield
