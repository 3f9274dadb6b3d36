"""Hosting of every generation that is not dropped: a new one is read within a second, a dropped one no more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from anabranch.background.builds import Pace
from anabranch.background.counted_log import CountedLog
from anabranch.background.outcome_log import OutcomeLog, WithoutOutcomes
from anabranch.background.source_hosting import Door
from anabranch.composition.overrides import Overrides
from anabranch.composition.owing import OwingLedger, UnrepeatingLedger
from anabranch.composition.ports import ports_of
from anabranch.composition.readers import AGAIN, ANSWERING, Reader, endings_only, makes_facts, readers, rest_of
from anabranch.composition.shelf import EngineShelf
from anabranch.composition.storage import Storage
from anabranch.indexing import outdated_error
from anabranch.settings import Settings
from schemas.errors import AnabranchError, TransientError
from schemas.generations import Generation
from schemas.ports.ledger import Ledger
from schemas.ports.log import EventLog, Subscriber
from schemas.ports.pauses import WHOLE
from schemas.records import StoredRecord
from sql.builds import PgBuilds
from sql.generations import PgGenerations
from sql.ledger import PgLedger
from sql.pauses import PgPauses
from sql.pool import Pool
from sql.revisions import PgRevisions
from streams.hosting import Host
from streams.observe import Observer
from streams.partition import RENEWED_S, Bounds
from streams.publisher import Publisher
from streams.runner import Runner, Work
from streams.stage import Stage

log = structlog.get_logger(__name__)
POLL_S = 0.5
MADE_POLL_S = 0.05
"""While there is no generation yet."""


@dataclass(slots=True)
class Hosting:
    """`builds` are the connections of generations that are being built: they take none from those that answer."""

    settings: Settings
    storage: Storage
    stages: Sequence[Stage]
    first: Generation
    shelf: EngineShelf
    builds: Pool
    observer: Observer
    overrides: Overrides
    subscriber: Subscriber
    door: Door
    bounds: Bounds = field(default_factory=Bounds)
    running: dict[tuple[object, ...], tuple[Reader, asyncio.Task[None]]] = field(default_factory=dict)
    hosts: dict[tuple[object, ...], Host] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)
    unfit: set[str] = field(default_factory=set)
    """Generations whose engines this process cannot prepare."""
    standing: dict[tuple[object, ...], Reader] = field(default_factory=dict)
    """Readers whose facts another version of this program makes."""
    told_at: float | None = None

    async def run(self) -> None:
        """Until cancelled. Raises what stopped a reader of a generation that answers; one that is only being built takes nothing with it."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._adapt([], group)
                while True:
                    await asyncio.sleep(POLL_S if await self._follow(group) else MADE_POLL_S)
        finally:
            with suppress(TransientError):
                await self.keep_books()
                await self._go_on(list(self.standing))

    async def _follow(self, group: asyncio.TaskGroup) -> bool:
        """Once; whether there is any generation. A lost database changes nothing."""
        try:
            generations = await PgGenerations(self.storage.pool).undropped()
            await self.keep_books()
            await self._try_again()
            if generations:
                await self._adapt(generations, group)
                await self._tell({generation.name: generation for generation in generations})
        except TransientError:
            return bool(self.running)
        return bool(generations)

    async def _adapt(self, generations: Sequence[Generation], group: asyncio.TaskGroup) -> None:
        """Before there is any generation in the tables, what all share is read already: stage control makes the first."""
        found = readers(generations or [self.first], self.stages, self.storage.producer_topics)
        wanted = {reader.key: reader for reader in found if generations or reader.stage.shared}
        await self._stop([key for key in self.running if key not in wanted])
        await self._go_on([key for key in self.standing if key not in wanted])
        for key, reader in wanted.items():
            if key not in self.running and key not in self.standing and (host := await self._host(reader)) is not None:
                self.running[key] = (reader, group.create_task(self._read(reader, host)))
                self.hosts[key] = host

    def runners(self) -> dict[tuple[str, str | None], Runner]:
        """(stage, generation; None for what all share) → its runner, where it does all that the stage does."""
        found = [(self.running[key][0], host) for key, host in self.hosts.items() if key in self.running and key not in self.standing]
        return {(reader.stage.name, None if reader.stage.shared else reader.generation.name): host.runner for reader, host in found}

    async def _stop(self, keys: Sequence[tuple[object, ...]]) -> None:
        ending = [self.running.pop(key)[1] for key in keys]
        for key in keys:
            del self.hosts[key]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _try_again(self) -> None:
        """What stopped here and was told to go on is hosted anew."""
        stopped = self.unfit | {reader.generation.name for reader, task in self.running.values() if task.done()}
        builds = await PgBuilds(self.storage.pool).all() if stopped else {}
        for name in stopped & {name for name, build in builds.items() if build.error is None}:
            self.unfit.discard(name)
            await self._stop([key for key, (reader, task) in self.running.items() if reader.generation.name == name and task.done()])

    async def _read(self, reader: Reader, host: Host) -> None:
        try:
            await host.run()
        except Exception as error:
            if not reader.silent:
                raise
            log.error("a generation that is being built cannot go on", generation=reader.generation.name, stage=reader.stage.name, error=repr(error))
            await self._note(reader.generation.name, error)

    async def _host(self, reader: Reader) -> Host | None:
        """None where this process has not what the generation needs; another one may."""
        generation = reader.generation
        if generation.name in self.unfit:
            return None
        try:
            engines = await self.shelf.counted(generation)
        except AnabranchError as error:
            if generation.state in ANSWERING:
                raise
            self.unfit.add(generation.name)
            log.error("a generation cannot be built here", generation=generation.name, code=error.code, detail=error.detail, remedy=error.remedy)
            await self._note(generation.name, error)
            return None
        pool, event_log = (self.builds, WithoutOutcomes(self.storage.log)) if reader.silent else (self.storage.pool, self.storage.log)
        if makes_facts(reader) and reader.author in await self.shelf.outdated(generation):
            self._stand(reader)
            if (rest := rest_of(reader)) is None:
                return None
            reader = rest
        ports = ports_of(self.settings, self.storage, generation, engines, self.overrides, self.door)
        codec = self.storage.codec
        ledger = _ledger(reader, pool)
        publisher = Publisher(reader.author, generation, codec, self.overrides.clock)
        given: tuple[Any, ...] = (reader.stage, ledger, _told(event_log, self.observer), ports, publisher, codec, self.observer)
        pace = await self._pace(generation.name) if reader.silent else None
        lost_attempts = self.settings.worker.lost_attempts
        runner = PacedRunner(pace, *given, lost_attempts=lost_attempts) if pace else Runner(*given, lost_attempts=lost_attempts)
        return Host(runner, self.subscriber, reader.topic, self.bounds, group=reader.group, pauses=PgPauses(self.storage.pool))

    def _stand(self, reader: Reader) -> None:
        """What waits is not touched: a worker of the version that made the generation may go on with it, beside this one or after it."""
        self.standing[reader.key], self.told_at = reader, None
        reason = outdated_error(reader.generation, [reader.author])
        log.warning("a stage is left to another version of this program", stage=reader.author, detail=reason.detail, remedy=reason.remedy)

    async def _go_on(self, keys: Sequence[tuple[object, ...]]) -> None:
        """Nothing of these waits for this process any more."""
        for reader in [self.standing.pop(key) for key in keys]:
            await PgPauses(self.storage.pool).forget(reader.group, reader.topic, WHOLE)

    async def _tell(self, generations: Mapping[str, Generation]) -> None:
        now = asyncio.get_running_loop().time()
        if self.told_at is not None and now - self.told_at < RENEWED_S:
            return
        for reader in self.standing.values():
            reason = outdated_error(generations[reader.generation.name], [reader.author])
            await PgPauses(self.storage.pool).note(reader.group, reader.topic, WHOLE, reason)
        self.told_at = now

    async def _pace(self, generation: str) -> Pace:
        """As it was told before the first event is read."""
        if generation not in self.paces:
            build = await PgBuilds(self.storage.pool).get(generation)
            pace = Pace()
            if build is not None:
                pace.set(paused=build.paused, events_per_second=build.events_per_second)
            self.paces[generation] = pace
        return self.paces[generation]

    async def keep_books(self) -> None:
        """Of generations that are being built: take their pace, add up what they asked of engines."""
        if not self.paces:
            return
        books = PgBuilds(self.storage.pool)
        for name, build in (await books.all()).items():
            if name in self.paces:
                self.paces[name].set(paused=build.paused, events_per_second=build.events_per_second)
                await books.asked(name, self.shelf.taken(name))

    async def _note(self, generation: str, error: Exception) -> None:
        try:
            await PgBuilds(self.storage.pool).failed(generation, error)
        except TransientError:
            log.warning("why a build stopped could not be kept", generation=generation)


def _ledger(reader: Reader, pool: Pool) -> Ledger:
    own = PgLedger(pool, reader.generation)
    if reader.stage.react is endings_only:
        return OwingLedger(own)
    return UnrepeatingLedger(own, PgRevisions(pool)) if reader.stage.name == AGAIN else own


class PacedRunner(Runner):
    """A runner that claims no faster than it may, and not at all while its build is paused."""

    def __init__(self, pace: Pace, *given: Any, lost_attempts: int) -> None:
        super().__init__(*given, lost_attempts=lost_attempts)
        self.pace = pace

    async def claim(self, records: Sequence[StoredRecord]) -> list[Work]:
        works: list[Work] = []
        while records:
            few = self.pace.few(len(records))
            await self.pace.admit(few)
            works += await super().claim(records[:few])
            records = records[few:]
        return works


def _told(event_log: EventLog, observer: Observer) -> EventLog:
    return CountedLog(OutcomeLog(event_log), observer.published)
