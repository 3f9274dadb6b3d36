"""Handles of the running system: connection pool, log, subscriber, blob store and codec."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from schemas.ports.engines import BlobStore
from schemas.ports.keys import KeyShares
from schemas.ports.log import EventLog, Subscriber
from schemas.records import Position
from sql.log.offset_store import PgOffsetStore
from sql.pool import Pool
from streams.codec import Codec

# First number of an order. Sources without a declared epoch have 1 too.
LOG_EPOCH = 1


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
    stamp: Callable[[Position, datetime], list[int]]
    offset_store: PgOffsetStore
    """Offsets of Kafka consumer groups. The Postgres log keeps its cursors itself."""
    producer_topics: tuple[str, ...] = ()
    """Topics `raw.NAME`, one per producer."""
    key_file: ShareFile | None = None

    async def fetch_ends(self, topic: str) -> dict[int, int]:
        """Fetch the offset after the last record of each partition."""
        return {
            partition: following
            for partition, (_, following) in (await self.log.fetch_offset_bounds(topic)).items()
        }


def build_order_stamp(log_kind: str) -> Callable[[Position, datetime], list[int]]:
    """Build the function that orders revisions: by offset on the Postgres log, by append time on
    Kafka.
    """
    if log_kind == "postgres":
        return lambda position, appended_at: [LOG_EPOCH, position.offset]
    # Partition and offset break ties: two partitions may append in the same millisecond.
    return lambda position, appended_at: [
        LOG_EPOCH,
        int(appended_at.timestamp() * 1000),
        position.partition,
        position.offset,
    ]
