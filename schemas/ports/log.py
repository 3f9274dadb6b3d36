"""The log of raw records, twice implemented: Kafka and Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from schemas.records import Position, Record, StoredRecord


class Sink(Protocol):
    """What a subscription hands its records to: one for each assigned partition, fresh after every assignment."""

    def offer(self, record: StoredRecord) -> None:
        """Take a record, in the partition's order. Never blocks; call `full` afterwards."""

    @property
    def is_full(self) -> bool:
        """True while the partition should be paused: its queue holds more bytes than it may."""

    async def close(self) -> None:
        """The partition was revoked or the worker stops: drop what is queued, cancel what runs. Nothing is acknowledged afterwards."""


class Partition(Protocol):
    """The log's side of an assigned partition."""

    topic: str
    number: int

    def acknowledge(self, next_offset: int) -> None:
        """Everything below `next_offset` is done. Called with growing offsets only; becomes durable soon, and at the latest on a clean stop."""

    def resume(self) -> None:
        """The sink is no longer full. Safe to call at any time."""

    @property
    def committed_offset(self) -> int:
        """What was delivered below this offset is acknowledged, and durably: the group is not given it again."""


class OpenSink(Protocol):
    def __call__(self, partition: Partition) -> Sink: ...


class Subscription(Protocol):
    """One consumer group's reading of one topic."""

    async def run(self) -> None:
        """Read until cancelled. Raises FatalError if the log refuses for good; transient trouble is waited out."""


class EventLog(Protocol):
    """Topics of raw records. Names have no prefix; the adapter adds its own."""

    async def append(self, records: Sequence[Record]) -> list[Position]:
        """Durable when it returns, in the given order within a partition. May store a record twice when it raises LogUnavailable and is called again; readers drop repeats."""

    async def create_topics(self, partitions: Mapping[str, int], *, retention_ms: Mapping[str, int]) -> None:
        """Create what is missing; retention is unlimited for topics not named in `retention_ms`. Raises ConfigurationError where an existing topic has another partition count, or stamps records by another clock than the log's."""

    async def delete_topics(self, topics: Collection[str]) -> None:
        """For good, with their records; unknown ones are passed over. Whoever still reads one reads nothing more, or fails with code NO_TOPIC."""

    async def fetch_offset_bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        """Per partition the first readable offset and the one after the last."""

    def read(
        self, topic: str, start: Mapping[int, int] | None = None, end: Mapping[int, int] | None = None, *, resume_after: Mapping[int, int] | None = None
    ) -> AsyncIterator[StoredRecord]:
        """Bulk reading outside any group, from `start` (default: the first) up to `end` (exclusive; default: the ends when called), then stop. In order within a partition.
        `behind` names the last record that an earlier call within the same limits gave of a partition: go on where that one stopped. `start` would not do, since
        offsets of the Postgres log do not grow in reading order."""

    async def read_at(self, position: Position) -> StoredRecord | None:
        """One record at its own place, or None if it is no longer there."""

    async def fetch_max_retention(self, topic: str) -> timedelta | None:
        """How long at most a record that is appended now can be found, as the topic is set up now; None where it stays, or where the log does not say."""

    async def fetch_min_retention(self, topic: str) -> timedelta | None:
        """How long every record can be found, as the topic is set up now: what is younger was not dropped. None where it stays for ever, or where the log
        does not say."""

    async def fetch_expired_offsets(self, topic: str) -> dict[int, int]:
        """Per partition the offset below which retention has dropped what was there; partitions of which nothing was dropped are left out."""

    async def fetch_committed_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Per partition the next offset that the group will read; partitions never acknowledged are left out."""

    async def close(self) -> None: ...


class Subscriber(Protocol):
    """What can read for stages. Kafka: Faust apps; Postgres: a reader under a lease."""

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> Subscription: ...
