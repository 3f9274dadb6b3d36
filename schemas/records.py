"""What a log holds: bytes under a topic and key, and the place where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

Headers = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Record:
    """To be appended. The partition is chosen by the key (murmur2 in Kafka's way); without a key the log chooses."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes of key, value and headers: what bounded queues count."""
        headers = sum(len(name) + len(value) for name, value in self.headers.items())
        return len(self.key or b"") + len(self.value or b"") + headers


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a record stands. On the Postgres log the partition is 0 and the offset the table's position."""

    topic: str
    partition: int
    offset: int


def is_repeat(position: Position | None, first_position: Position | None) -> bool:
    """Whether a record stands elsewhere than `first`: with the same event, it was sent again. The reaction is owed to the first alone, which is delivered
    until it is acknowledged: by the repeat's place the event would overtake what was sent between the two, and of two copies in two partitions the one
    that ends sooner would give the event its order."""
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
