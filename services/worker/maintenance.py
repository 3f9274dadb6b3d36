"""Periodic maintenance of tables, log and blobs. Any number of workers may run it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import count

import structlog

from processors import STAGES, TOPICS
from services.background_tasks import repeat
from services.generations.service import sweep_token_states
from services.storage import Storage
from sql.database import Pool
from sql.index.lexical import compact_lexical
from sql.index.search import ensure_vector_index
from sql.invalidation import IndexChangePruner
from sql.log.event_log import EXPIRY_INTERVAL

log = structlog.get_logger(__name__)
INTERVAL_S = 20.0
UNREAD_TOPICS = tuple(
    topic
    for topic in TOPICS
    if not topic.read_by_producers and topic not in {stage.topic for stage in STAGES}
)
"""Topics whose records wait for no reader before they expire."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Check for restored tables, compact lexical deltas, build vector indexes, prune index changes,
    expire records of the Postgres log, sweep token states. Indexes are built over `build_pool`,
    because that takes minutes.
    """

    storage: Storage
    build_pool: Pool
    changes: IndexChangePruner
    interval_s: float = INTERVAL_S

    async def run(self) -> None:
        """Run until cancelled. Retries while the database is unavailable."""
        rounds_per_expiry = max(1, int(EXPIRY_INTERVAL.total_seconds() / self.interval_s))
        rounds = count()
        await repeat(
            lambda: self.run_once(expire=next(rounds) % rounds_per_expiry == 0),
            self.interval_s,
            "maintenance_postponed",
        )

    async def run_once(self, *, expire: bool) -> None:
        # First: tables that lack committed events must not be changed.
        await self.storage.offset_store.check_not_restored()
        for generation in await self.storage.generations.fetch_undropped():
            # The builder indexes a generation once it is loaded.
            if generation.state == "building":
                continue
            while await compact_lexical(self.storage.pool, generation.name):
                # Let consumers run between two batches.
                await asyncio.sleep(0)
            if await ensure_vector_index(self.build_pool, generation):
                log.info("vector_index_built", generation=generation.name)
        await self.changes.prune()
        if expire:
            await self.storage.log.expire(UNREAD_TOPICS)
        # Last, because it may take long and waits while the blob store is unavailable.
        if deleted_blob_count := await sweep_token_states(self.storage):
            log.info("token_states_deleted", blobs=deleted_blob_count)
