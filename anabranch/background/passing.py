"""Waiting until everything that was under way at a moment has come to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from anabranch.composition.readers import Reader, readers
from anabranch.composition.storage import Storage
from processors import STAGES
from sql.builds import PgBuilds
from sql.erasure import PgErasure
from sql.generations import PgGenerations
from streams.codec import base_topic
from streams.topics import ACCEPTED, CONTROL, DEAD_LETTERS, DOCUMENT_TOPICS, FEEDBACK, QUERIES, RAW

log = structlog.get_logger(__name__)
POLL_S = 0.2
DOWN = (*DOCUMENT_TOPICS, QUERIES, FEEDBACK, DEAD_LETTERS)
"""In this order facts follow from each other."""


@dataclass(frozen=True, slots=True)
class Passing:
    """Each call goes down the river, topic by topic: takes the end of one, and waits until its readers have passed it, so that what they made of it is in the
    next before the end of that is taken. Then it waits until every replay has ended the batch that it was at, and gives the moment, by the clock of the tables,
    that it began at: nothing that was opened before writes any more, and what was asked before is known.

    Stage control and erasures wait for each other otherwise; a build that is paused, or that has failed, opens nothing before it goes on."""

    storage: Storage

    async def all(self) -> datetime:
        return await self._passed(await self._readers())

    async def answering(self) -> datetime:
        """Without waiting for what is being built."""
        return await self._passed([reader for reader in await self._readers() if not reader.silent])

    async def arrived(self) -> None:
        """Until the tables know the documents of everything that producers had sent."""
        waited = [reader for reader in await self._readers() if not reader.silent]
        for topic in (RAW, ACCEPTED):
            await self._topic([reader for reader in waited if base_topic(reader.topic) == topic])

    async def builds(self) -> bool:
        """Whether anything that is waited for is being built."""
        return any(reader.silent for reader in await self._readers())

    async def _readers(self) -> list[Reader]:
        builds = await PgBuilds(self.storage.pool).all()
        still = {name for name, build in builds.items() if build.paused or build.error}
        found = readers(await PgGenerations(self.storage.pool).undropped(), STAGES, self.storage.producer_topics)
        return [reader for reader in found if reader.topic != CONTROL and not (reader.silent and reader.generation.name in still)]

    async def _passed(self, waited: Sequence[Reader]) -> datetime:
        began, replays = await PgErasure(self.storage.pool).now(), await PgErasure(self.storage.pool).replays_at_work()
        for topic in DOWN:
            await self._topic([reader for reader in waited if base_topic(reader.topic) == topic])
        while replays.items() & (await PgErasure(self.storage.pool).replays_at_work()).items():
            await asyncio.sleep(POLL_S)
        return began

    async def _topic(self, waited: Sequence[Reader]) -> None:
        barriers = {topic: await self.storage.ends(topic) for topic in {reader.topic for reader in waited}}
        for reader in waited:
            log.debug("waiting for a stage to pass what is in its topic", stage=reader.stage.name, topic=reader.topic)
            while await self.storage.waiting(reader.group, reader.topic, barriers[reader.topic]) and reader in await self._readers():
                await asyncio.sleep(POLL_S)
