"""Raw records of a log, and their positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

Headers = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Record:
    """A record to append.

    The key selects the partition (Kafka's murmur2); without a key the log selects it.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=dict)
    size_bytes: int = field(init=False, repr=False, compare=False)
    """Size of key, value and headers, as bounded queues count it."""

    def __post_init__(self) -> None:
        headers = sum(map(len, self.headers)) + sum(map(len, self.headers.values()))
        size = len(self.key or b"") + len(self.value or b"") + headers
        # Queues ask for it many times.
        object.__setattr__(self, "size_bytes", size)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The position of a record. On the Postgres log the partition is always 0."""

    topic: str
    partition: int
    offset: int


def is_repeat(position: Position | None, first_position: Position | None) -> bool:
    """Return whether this record repeats one at another position, because its producer retried the
    append.

    Only the first copy gets its reaction, since only the first is redelivered until it is
    acknowledged. Reacting at the repeat's position would let the event overtake records that were
    appended between the two copies. With copies in two partitions, the order of the event would
    depend on which of them finishes first.
    """
    return position is not None and first_position is not None and position != first_position


@dataclass(frozen=True, slots=True)
class StoredRecord:
    record: Record
    position: Position
    appended_at: datetime
    """The log's own clock (Kafka: LogAppendTime), in UTC."""

    @property
    def size_bytes(self) -> int:
        return self.record.size_bytes
