"""What tables and log need from time to time; any number of workers may do it, one at a time does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from schemas.errors import TransientError
from schemas.generations import Generation
from services.generations.token_state_sweep import sweep_token_states
from services.storage import Storage
from sql.compaction import compact_lexical
from sql.generations import PgGenerations
from sql.invalidation import IndexChangePruner
from sql.log import EXPIRY_INTERVAL, PgLog
from sql.pool import Pool
from sql.vector_index import ensure_vector_index

log = structlog.get_logger(__name__)
INTERVAL_S = 20.0


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Notices other tables in place of these, folds lexical deltas, builds the vector index once it is worth it, forgets old changes of indexes, drops expired
    records of the Postgres log, sweeps what dropped generations left in the blob store. Indexes are built over `builds`: that takes minutes."""

    storage: Storage
    build_pool: Pool
    changes: IndexChangePruner
    interval_s: float = INTERVAL_S

    async def run(self) -> None:
        """Until cancelled. A lost database is waited for."""
        round_number = 0
        while True:
            await asyncio.sleep(self.interval_s)
            try:
                await self.run_once(expire=round_number % self._rounds_per_expiry == 0)
            except TransientError as error:
                log.warning("maintenance waits", code=error.code, detail=error.detail)
            round_number += 1

    @property
    def _rounds_per_expiry(self) -> int:
        """Between two looks for expired records."""
        return max(1, int(EXPIRY_INTERVAL.total_seconds() / self.interval_s))

    async def run_once(self, *, expire: bool) -> None:
        await self.storage.offset_store.check_not_restored()
        for generation in await PgGenerations(self.storage.pool).fetch_undropped():
            if generation.state != "building":
                await self._maintain_generation(generation)
        await self.changes.prune()
        if expire and isinstance(self.storage.log, PgLog):
            await self.storage.log.expire()
        # The last: it takes long where there is much, and waits where the blob store is away.
        if deleted_blob_count := await sweep_token_states(self.storage):
            log.info("token states of dropped generations are gone", blobs=deleted_blob_count)

    async def _maintain_generation(self, generation: Generation) -> None:
        while await compact_lexical(self.storage.pool, generation.name):
            await asyncio.sleep(0)
        if await ensure_vector_index(self.build_pool, generation):
            log.info("vector index built", generation=generation.name)
