"""Building a generation beside the one that answers: load, index, catch up, and for a rebuild check, switch and drop.

Nothing of it is remembered here: how far the load has come are its readers' places in the log, so a worker that was killed goes on where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from anabranch.composition.readers import Reader, origin, readers
from anabranch.composition.storage import Storage
from anabranch.desk.decisions import Decisions
from anabranch.desk.dropping import finish_drop
from anabranch.desk.retention import check_retained
from schemas.errors import AnabranchError, PermanentError, TransientError
from schemas.generations import Generation
from sql.builds import Build, PgBuilds
from sql.checksum import differences
from sql.dropping import dropped, give_up
from sql.generations import PgGenerations
from sql.pool import Pool
from sql.secondary_indexes import build_indexes
from sql.switching import switch
from sql.vector_index import ensure_vector_index
from streams.stage import Stage

log = structlog.get_logger(__name__)
POLL_S = 0.2
CHECKS = 60
CHECK_EVERY_S = 0.5
GRACE_S = 3.0
"""By then every worker has seen that a generation is dropped."""
Ends = dict[int, int]


@dataclass(slots=True)
class Builder:
    """Any number of workers may run one: of each generation, one builds."""

    storage: Storage
    builds: Pool
    stages: Sequence[Stage]
    decisions: Decisions
    keep_books: Callable[[], Awaitable[None]]
    """Adds up what was asked of engines here."""
    working: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    removing: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    leaving: dict[str, float] = field(default_factory=dict)
    """Dropped generations whose tables are still there, since when they were seen."""

    async def run(self) -> None:
        """Until cancelled. A lost database or log is waited for."""
        try:
            while True:
                await asyncio.sleep(POLL_S)
                try:
                    await self._look()
                except TransientError as error:
                    log.warning("building waits", code=error.code, detail=error.detail)
        finally:
            await _cancelled([*self.working.values(), *self.removing.values()])

    async def _look(self) -> None:
        builds = await PgBuilds(self.storage.pool).all()
        await _cancelled([task for name, task in self.working.items() if name not in builds])
        self.working, self.removing = _at_work(self.working), _at_work(self.removing)
        for name in await self._left():
            self.removing[name] = asyncio.create_task(self._remove(name))
        for name, build in builds.items():
            if _unfinished(build) and name not in self.working:
                self.working[name] = asyncio.create_task(self._guarded(build))

    async def _left(self) -> list[str]:
        """Dropped generations that every worker has stopped reading for."""
        now = asyncio.get_running_loop().time()
        self.leaving = {name: self.leaving.get(name, now) for name in await dropped(self.storage.pool)}
        return [name for name, since in self.leaving.items() if now - since >= GRACE_S and name not in self.removing]

    async def _remove(self, name: str) -> None:
        try:
            async with PgBuilds(self.builds).alone(name) as mine:
                if mine and not (removal := await finish_drop(self.builds, self.storage.log, name)).removed:
                    log.info("tables of a dropped generation are still held", generation=name, holder=removal.held_by)
        except TransientError as error:
            log.warning("removing a generation waits", generation=name, code=error.code, detail=error.detail)

    async def _guarded(self, build: Build) -> None:
        books = PgBuilds(self.builds)
        try:
            async with books.alone(build.generation.name) as mine:
                if mine:
                    await self._work(build, books)
        except TransientError as error:
            log.warning("a build waits", generation=build.generation.name, code=error.code, detail=error.detail)
        except AnabranchError as error:
            log.error("a build failed", generation=build.generation.name, code=error.code, detail=error.detail)
            await books.failed(build.generation.name, error)

    async def _work(self, build: Build, books: PgBuilds) -> None:
        generation = build.generation
        if generation.state == "building":
            await books.reached(generation.name, "loading")
            await self._settled(generation)
            await books.reached(generation.name, "indexing")
            await self._index(generation)
            await books.reached(generation.name, "catching up")
            barrier = await self._settled(generation)
            await self.keep_books()
            await books.done(generation.name, events=await self._events(generation), rows=await books.rows(generation.name))
            await self.decisions.built(generation.name, {topic: ends for topic, ends in barrier.items() if origin(topic) != generation.name})
            await self._until_told(generation.name)
        if build.purpose == "rebuild":
            await self._replace(generation.name, books)

    async def _settled(self, generation: Generation) -> Mapping[str, Ends]:
        """Wait until every event that is in the log now, and all that follows from it, is settled; returns the barrier."""
        found = await self._readers(generation)
        topics = {reader.topic for reader in found}
        barrier = {topic: await self.storage.ends(topic) for topic in sorted(topics)}
        for reader in found:
            if origin(reader.topic) == generation.name:
                barrier[reader.topic] = await self.storage.ends(reader.topic)
            while await self.storage.waiting(reader.group, reader.topic, barrier[reader.topic]):
                await asyncio.sleep(POLL_S)
        return barrier

    async def _readers(self, generation: Generation) -> list[Reader]:
        """Those of the generation itself, each after the one whose facts it reads."""
        every = readers(await PgGenerations(self.storage.pool).undropped(), self.stages)
        return [reader for reader in every if reader.generation.name == generation.name and reader.silent]

    async def _index(self, generation: Generation) -> None:
        async for name in build_indexes(self.builds, generation.name):
            log.info("index built", index=name)
        if await ensure_vector_index(self.builds, generation):
            log.info("vector index built", generation=generation.name)

    async def _events(self, generation: Generation) -> int:
        return sum([await self.storage.records(reader.topic) for reader in await self._readers(generation)])

    async def _until_told(self, name: str) -> None:
        """Until stage control has heard that it is built."""
        generations = PgGenerations(self.storage.pool)
        while (found := await generations.get(name)) is not None and found.state == "building":
            await asyncio.sleep(POLL_S)

    async def _replace(self, name: str, books: PgBuilds) -> None:
        build = await books.get(name)
        live = await PgGenerations(self.storage.pool).live()
        if build is None or live is None or build.generation.state != "shadow":
            return
        await books.reached(name, "checking")
        await check_retained(self.storage, live.name, read_by=name)
        await self._check(live.name, name)
        await switch(self.builds, name, self.decisions.promoted)
        await books.reached(name, "built")
        if not build.keep:
            await give_up(self.builds, live.name, self.decisions.dropped)

    async def _check(self, live: str, name: str) -> None:
        """What is under way differs for a moment; what goes on differing is wrong. Raises PermanentError."""
        for _ in range(CHECKS):
            different = await differences(self.builds, live, name)
            if not different:
                return
            await asyncio.sleep(CHECK_EVERY_S)
        raise PermanentError(
            f"generation {name} differs from {live} in {', '.join(different)}",
            code="REBUILD_DIFFERS",
            remedy="`anabranch db checksum --all` shows the live one's sums; keep both and report this.",
        )


def _at_work(tasks: Mapping[str, asyncio.Task[None]]) -> dict[str, asyncio.Task[None]]:
    return {name: task for name, task in tasks.items() if not task.done()}


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _unfinished(build: Build) -> bool:
    return build.error is None and (build.generation.state == "building" or (build.purpose == "rebuild" and build.generation.state == "shadow"))
