"""What tables and log need from time to time; any number of workers may do it, one at a time does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from anabranch.background.state_sweeping import sweep_states
from anabranch.composition.storage import Storage
from schemas.errors import TransientError
from schemas.generations import Generation
from sql.compaction import compact_lexical
from sql.generations import PgGenerations
from sql.index_changes import PrunedChanges
from sql.log import EXPIRE_EVERY, PgLog
from sql.pool import Pool
from sql.vector_index import ensure_vector_index

log = structlog.get_logger(__name__)
EVERY_S = 20.0


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Notices other tables in place of these, folds lexical deltas, builds the vector index once it is worth it, forgets old changes of indexes, drops expired
    records of the Postgres log, sweeps what dropped generations left in the blob store. Indexes are built over `builds`: that takes minutes."""

    storage: Storage
    builds: Pool
    changes: PrunedChanges
    every_s: float = EVERY_S

    async def run(self) -> None:
        """Until cancelled. A lost database is waited for."""
        turn = 0
        while True:
            await asyncio.sleep(self.every_s)
            try:
                await self.once(expire=turn % self._rounds == 0)
            except TransientError as error:
                log.warning("maintenance waits", code=error.code, detail=error.detail)
            turn += 1

    @property
    def _rounds(self) -> int:
        """Between two looks for expired records."""
        return max(1, int(EXPIRE_EVERY.total_seconds() / self.every_s))

    async def once(self, *, expire: bool) -> None:
        await self.storage.reached.check()
        for generation in await PgGenerations(self.storage.pool).undropped():
            if generation.state != "building":
                await self._look_after(generation)
        await self.changes.once()
        if expire and isinstance(self.storage.log, PgLog):
            await self.storage.log.expire()
        # The last: it takes long where there is much, and waits where the blob store is away.
        if swept := await sweep_states(self.storage):
            log.info("token states of dropped generations are gone", blobs=swept)

    async def _look_after(self, generation: Generation) -> None:
        while await compact_lexical(self.storage.pool, generation.name):
            await asyncio.sleep(0)
        if await ensure_vector_index(self.builds, generation):
            log.info("vector index built", generation=generation.name)
