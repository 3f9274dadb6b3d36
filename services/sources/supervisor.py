"""Start, stop and restart the readers of declared sources."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

import structlog

from schemas.errors import AnabranchError, TransientError
from schemas.ports.sources import SourceStore
from schemas.sources import DebeziumSource, DeclaredSource
from sql.catalog.sources import PgSources

log = structlog.get_logger(__name__)
POLL_S = 0.5
LEASE_S = 10.0
RETRY_S = 5.0


class SourceReader(Protocol):
    async def run(self) -> None: ...


@dataclass(slots=True)
class SourceEpochs:
    """Epoch of every source that was reset, for stage `receive`."""

    epochs: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class SourceSupervisor:
    """Run until cancelled. A failed source reports its error in its status and is retried."""

    declarations: PgSources
    store: SourceStore
    open_reader: Callable[[DeclaredSource], AbstractAsyncContextManager[SourceReader]]
    wait_until_caught_up: Callable[[DeclaredSource], Awaitable[None]]
    """Returns when the tables reflect the log: a reader without state compares with them."""
    close_down: Callable[[DeclaredSource], Any]
    """Clean up after a removed source. Idempotent."""
    owner: UUID
    source_epochs: SourceEpochs
    running_sources: dict[str, tuple[DeclaredSource, asyncio.Task[None]]] = field(
        default_factory=dict
    )

    async def run(self) -> None:
        while True:
            try:
                async with self.store.open_session(self.owner) as session_lost:
                    await self._reconcile_until(session_lost)
            except TransientError as error:
                log.warning("source_session_postponed", code=error.code, detail=error.detail)
            await asyncio.sleep(POLL_S)

    async def _reconcile_until(self, session_lost: asyncio.Event) -> None:
        """Run the readers until the session is lost: another worker may then acquire the leases."""
        try:
            while not session_lost.is_set():
                try:
                    await self._reconcile()
                except TransientError as error:
                    log.warning("source_poll_postponed", code=error.code, detail=error.detail)
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await session_lost.wait()
        finally:
            await self._stop(list(self.running_sources))

    async def _reconcile(self) -> None:
        sources = {source.spec.name: source for source in await self.declarations.fetch_sources()}
        self.source_epochs.epochs.update(await self.declarations.fetch_epochs())
        # A changed declaration is a different source: stop its reader and start another one.
        await self._stop(
            [
                name
                for name, (source, _) in self.running_sources.items()
                if sources.get(name) != source
            ]
        )
        for name, source in sources.items():
            if name not in self.running_sources:
                self.running_sources[name] = (source, asyncio.create_task(self._supervise(source)))

    async def _stop(self, source_names: list[str]) -> None:
        tasks = [self.running_sources.pop(name)[1] for name in source_names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _supervise(self, source: DeclaredSource) -> None:
        """Run one source until its declaration changes."""
        while True:
            try:
                await self._run_source(source)
                return
            except AnabranchError as error:
                await self._report_failure(source, error.code, error.detail, error.remedy)
            except Exception as error:
                log.exception("source_reader_crashed", source=source.spec.name)
                await self._report_failure(
                    source,
                    "BUG",
                    f"{type(error).__name__}: {error}",
                    "This is a defect of the program: report it with the worker's log.",
                )
            await asyncio.sleep(RETRY_S)

    async def _run_source(self, source: DeclaredSource) -> None:
        if source.removed:
            await self._run_exclusively(source, lambda: self.close_down(source))
            return
        # A reader without state compares with the tables, which may be in a rebuild.
        await self.wait_until_caught_up(source)
        async with self.open_reader(source) as source_reader:
            # A consumer group shares out its partitions; other sources have one reader at a time.
            if isinstance(source.spec.connector, DebeziumSource):
                await source_reader.run()
            else:
                await self._run_exclusively(source, source_reader.run)

    async def _run_exclusively(self, source: DeclaredSource, run: Callable[[], Any]) -> None:
        """Run while this process holds the source's lease."""
        name = source.spec.name
        while not await self.store.acquire_lease(name, self.owner, LEASE_S):
            await asyncio.sleep(POLL_S)
        reading, lease_renewal = (
            asyncio.ensure_future(run()),
            asyncio.create_task(self._renew_lease(name)),
        )
        try:
            # A lost lease has to stop the reader, and the reader's error the renewal.
            await asyncio.wait({reading, lease_renewal}, return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, lease_renewal):
                if task.done():
                    task.result()
        finally:
            # Shielded: a cancelled worker must release the lease, or others wait until it expires.
            await asyncio.shield(self._stop_and_release(name, reading, lease_renewal))

    async def _stop_and_release(self, name: str, *tasks: asyncio.Future[Any]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self.store.release_lease(name, self.owner)
        except TransientError as error:
            log.debug("source_lease_not_released", source=name, detail=error.detail)

    async def _renew_lease(self, name: str) -> None:
        """Raise TransientError when another worker has the lease, or after two missed renewals."""
        missed_renewals = 0
        # Two failures take about half of the lease, so reading stops before another worker begins.
        while missed_renewals < 2:
            await asyncio.sleep(LEASE_S / 4)
            try:
                if not await self.store.acquire_lease(name, self.owner, LEASE_S):
                    break
                missed_renewals = 0
            except TransientError:
                missed_renewals += 1
        raise TransientError(
            f"Another worker may have taken over source {name}.",
            code="LEASE_LOST",
            remedy="No action is needed: one of the workers continues.",
        )

    async def _report_failure(
        self, source: DeclaredSource, code: str, detail: str, remedy: str
    ) -> None:
        log.warning(
            "source_failed", source=source.spec.name, code=code, detail=detail, remedy=remedy
        )
        status: Mapping[str, Any] = {
            "state": "failed",
            "code": code,
            "detail": detail,
            "remedy": remedy,
        }
        try:
            await self.store.set_note(source.spec.name, "status", status)
        except TransientError as error:
            log.debug("source_status_not_stored", source=source.spec.name, detail=error.detail)
