"""Port of the log of raw records, with implementations on Kafka and Postgres."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from schemas.topics import Position, Record, StoredRecord

LOG_EPOCH = 1
"""First number of an order. Sources without a declared epoch have 1 too."""


class Sink(Protocol):
    """Receives the records of one partition from a subscription. One per assignment."""

    def offer(self, record: StoredRecord) -> None:
        """Accept a record, in the partition's order. Never blocks; check `is_full` afterwards."""

    @property
    def is_full(self) -> bool:
        """Return whether to pause the partition, because the queue exceeds its byte limit."""

    async def close(self) -> None:
        """Discard queued records and cancel running work. Nothing is acknowledged afterwards.

        Called when the partition is revoked or the worker stops.
        """


class Partition(Protocol):
    """The log's side of an assigned partition."""

    topic: str
    number: int

    def acknowledge(self, next_offset: int) -> None:
        """Acknowledge every record below `next_offset`.

        Must be called with increasing offsets. Becomes durable soon, and at the latest on a clean
        stop.
        """

    def resume(self) -> None:
        """Report that the sink is no longer full. Safe to call at any time."""

    @property
    def committed_offset(self) -> int:
        """Records below this offset are durably acknowledged and not delivered again."""


class OpenSink(Protocol):
    def __call__(self, partition: Partition) -> Sink: ...


class Subscription(Protocol):
    """One consumer group's subscription to one topic."""

    async def run(self) -> None:
        """Read until cancelled. Transient errors are retried.

        Raises FatalError if the log refuses permanently.
        """


class RecordAppender(Protocol):
    """The writing side of the log."""

    async def append(self, records: Sequence[Record]) -> list[Position]:
        """Append records durably, in the given order within a partition.

        May store a record twice if it raises LogUnavailable and is called again; consumers drop
        repeats.
        """


class EventLog(RecordAppender, Protocol):
    """Topics of raw records. Names have no prefix; the adapter adds its own."""

    is_in_database: bool
    """True if records and cursors are in the tables' database, and are backed up with them."""

    def assign_order(self, position: Position, appended_at: datetime) -> list[int]:
        """Return the order of a revision whose source states no sequence number: LOG_EPOCH, and
        numbers that grow with the log.
        """

    async def create_topics(
        self, partitions: Mapping[str, int], *, retention_ms: Mapping[str, int]
    ) -> None:
        """Create missing topics. Retention is unlimited unless `retention_ms` names the topic.

        Raises ConfigurationError if an existing topic has another partition count, or does not use
        the log's clock for its timestamps.
        """

    async def delete_topics(self, topics: Collection[str]) -> None:
        """Delete topics with their records. Unknown topics are ignored.

        A consumer that still reads one gets no more records, or fails with code NO_TOPIC.
        """

    async def fetch_offset_bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the first readable offset and the one after the last, by partition."""

    def read(
        self,
        topic: str,
        start: Mapping[int, int] | None = None,
        end: Mapping[int, int] | None = None,
        *,
        resume_after: Mapping[int, int] | None = None,
    ) -> AsyncGenerator[StoredRecord, None]:
        """Read records in bulk outside any group, in order within a partition, then stop.

        Reads from `start` (default: the first record) to `end` (exclusive; default: the end at the
        time of the call). `resume_after` holds the last record that an earlier call with the same
        bounds returned, by partition. `start` cannot be used to resume, since offsets of the
        Postgres log do not grow in reading order.
        """

    async def read_at(self, position: Position) -> StoredRecord | None:
        """Return the record at this position, or None if it has expired."""

    async def list_topics(self) -> list[str]:
        """Return all topics, including those of generations."""

    async def fetch_max_retention(self, topic: str) -> timedelta | None:
        """Return the maximum time for which a record appended now stays readable.

        Follows the topic's current configuration. None if records never expire, or if the log does
        not know.
        """

    async def fetch_min_retention(self, topic: str) -> timedelta | None:
        """Return the age below which no record has expired, by the topic's current configuration.

        None if records never expire, or if the log does not know.
        """

    async def fetch_expired_offsets(self, topic: str) -> dict[int, int]:
        """Return the offset below which retention has removed records, by partition.

        Complete partitions are omitted.
        """

    async def fetch_committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return the next offset that the group will read, by partition.

        Partitions without acknowledgement are omitted.
        """

    async def count_pending(
        self, group: str, topic: str, below: Mapping[int, int] | None = None
    ) -> int:
        """Count the records that the group has not acknowledged.

        `below` limits each partition to offsets before it.
        """

    async def count_records(self, topic: str, below: Mapping[int, int] | None = None) -> int:
        """Count the records of the topic. `below` limits each partition to offsets before it."""

    async def fetch_oldest_pending_time(self, group: str, topic: str) -> datetime | None:
        """Return the append time of the oldest record that the group has not acknowledged."""

    async def has_reader(self, group: str, topic: str) -> bool | None:
        """Return whether a process reads the topic for the group; None if the log does not know."""

    async def expire(self, unread: Collection[str] = ()) -> None:
        """Delete expired records that every reader has finished, if the log leaves that to us.

        Records of the topics `unread` wait for no reader; those of others stay until one exists.
        """

    async def close(self) -> None: ...


class Subscriber(Protocol):
    """Subscribes stages to topics. Kafka: Faust apps. Postgres: a reader under a lease."""

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> Subscription: ...
