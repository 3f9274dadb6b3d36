"""Keeping the readers of all declared sources at work: started, stopped and begun anew as the decisions on `control` say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

import structlog

from schemas.errors import AnabranchError, TransientError
from schemas.ports.sources import SourceStore
from schemas.sources import DebeziumSource, DeclaredSource

log = structlog.get_logger(__name__)
LOOK_S = 0.5
HOLD_S = 10.0
AGAIN_S = 5.0


class Reader(Protocol):
    async def run(self) -> None:
        """Until cancelled, or until something stops it."""


class Declared(Protocol):
    async def declared(self) -> list[DeclaredSource]: ...

    async def epochs(self) -> dict[str, int]: ...


@dataclass(slots=True)
class Door:
    """What the door reads of sources: the epoch of those that began anew."""

    epochs: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class SourceHosts:
    """`run` returns only by being cancelled; a source that fails is told of in its status and tried again."""

    declared: Declared
    store: SourceStore
    open_reader: Callable[[DeclaredSource], AbstractAsyncContextManager[Reader]]
    caught_up: Callable[[DeclaredSource], Awaitable[None]]
    """Returns when the tables hold what the log did: a reader without memory compares with them."""
    close_down: Callable[[DeclaredSource], Any]
    """What is left to do for a source that is removed; may be called again."""
    owner: UUID
    door: Door
    running: dict[str, tuple[DeclaredSource, asyncio.Task[None]]] = field(default_factory=dict)

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self._look()
                except TransientError as error:
                    log.warning("sources are not looked at", code=error.code, detail=error.detail)
                await asyncio.sleep(LOOK_S)
        finally:
            await self._stop(list(self.running))

    async def _look(self) -> None:
        sources = {source.spec.name: source for source in await self.declared.declared()}
        self.door.epochs.update(await self.declared.epochs())
        await self._stop([name for name, (source, _) in self.running.items() if sources.get(name) != source])
        for name, source in sources.items():
            if name not in self.running:
                self.running[name] = (source, asyncio.create_task(self._work(source)))

    async def _stop(self, names: list[str]) -> None:
        tasks = [self.running.pop(name)[1] for name in names]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, source: DeclaredSource) -> None:
        """One source, for as long as it is declared like this."""
        while True:
            try:
                await self._once(source)
                return
            except AnabranchError as error:
                await self._failed(source, error.code, error.detail, error.remedy)
            except Exception as error:
                log.exception("a bug in the reader of a source", source=source.spec.name)
                await self._failed(source, "BUG", f"{type(error).__name__}: {error}", "This is a defect of the program: report it with the worker's log.")
            await asyncio.sleep(AGAIN_S)

    async def _once(self, source: DeclaredSource) -> None:
        if source.removed:
            await self._alone(source, lambda: self.close_down(source))
            return
        await self.caught_up(source)
        async with self.open_reader(source) as reader:
            if isinstance(source.spec.takes, DebeziumSource):
                await reader.run()
            else:
                await self._alone(source, reader.run)

    async def _alone(self, source: DeclaredSource, run: Callable[[], Any]) -> None:
        """While no other worker does."""
        name = source.spec.name
        while not await self.store.hold(name, self.owner, HOLD_S):
            await asyncio.sleep(LOOK_S)
        work, keeping = asyncio.ensure_future(run()), asyncio.create_task(self._keep(name))
        try:
            await asyncio.wait({work, keeping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (work, keeping):
                if task.done():
                    task.result()
        finally:
            await asyncio.shield(self._end(name, work, keeping))

    async def _end(self, name: str, *tasks: asyncio.Future[Any]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._release(name)

    async def _keep(self, name: str) -> None:
        """Returns when another worker took over, or when the tables were away for too long to know."""
        missed = 0
        while missed < 2:
            await asyncio.sleep(HOLD_S / 4)
            try:
                if not await self.store.hold(name, self.owner, HOLD_S):
                    break
                missed = 0
            except TransientError:
                missed += 1
        raise TransientError(f"another worker reads source {name} now, or may", code="LEASE_LOST", remedy="Nothing: one of them goes on.")

    async def _release(self, name: str) -> None:
        try:
            await self.store.release(name, self.owner)
        except TransientError as error:
            log.debug("the hold runs out by itself", source=name, detail=error.detail)

    async def _failed(self, source: DeclaredSource, code: str, detail: str, remedy: str) -> None:
        log.warning("source stopped, and is tried again", source=source.spec.name, code=code, detail=detail, remedy=remedy)
        status: Mapping[str, Any] = {"state": "failed", "code": code, "detail": detail, "remedy": remedy}
        try:
            await self.store.note(source.spec.name, "status", status)
        except TransientError as error:
            log.debug("status not kept", source=source.spec.name, detail=error.detail)
