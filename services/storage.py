"""Handles of the running system: connection pool, log, subscriber, blob store and codec."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from schemas.ports.engines import BlobStore
from schemas.ports.keys import KeyShares
from schemas.ports.log import EventLog, Subscriber
from sql.database import Pool
from sql.index.generations import PgGenerationBuilds, PgGenerations
from sql.log.offset_store import PgOffsetStore
from sql.operations.replays import PgReplays
from streams.codec import Codec


class ShareFile(KeyShares, Protocol):
    """Key shares outside the database, which an erasure overwrites in place."""

    def overwrite(self, slots: Iterable[int]) -> int:
        """Overwrite the shares with zeros and sync the file; returns how many were still readable.
        Idempotent. Blocks.
        """


@dataclass(frozen=True, slots=True)
class Storage:
    dsn: str
    pool: Pool
    log: EventLog
    subscriber: Subscriber
    blobs: BlobStore
    codec: Codec
    offset_store: PgOffsetStore
    """Offsets of Kafka consumer groups. The Postgres log keeps its cursors itself."""
    producer_topics: tuple[str, ...] = ()
    """Topics `raw.NAME`, one per producer."""
    key_file: ShareFile | None = None

    @property
    def generations(self) -> PgGenerations:
        return PgGenerations(self.pool)

    @property
    def builds(self) -> PgGenerationBuilds:
        return PgGenerationBuilds(self.pool)

    @property
    def replays(self) -> PgReplays:
        return PgReplays(self.pool)

    async def fetch_ends(self, topic: str) -> dict[int, int]:
        """Fetch the offset after the last record of each partition."""
        return {
            partition: following
            for partition, (_, following) in (await self.log.fetch_offset_bounds(topic)).items()
        }
