"""The topics, each declared once, and their raw records.

Partitions, retention, encryption and access rules derive from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from schemas.errors import InvalidRequest

Writer = Literal["producers", "api", "workers"]
Headers = Mapping[str, bytes]
WEEK = timedelta(days=7)
MAX_EVENT_BYTES = 900_000
"""Size limit of our events, below Kafka's default of 1 MB; larger content goes into a blob."""


class Topic(str):
    """A topic: its name without prefix, with its properties."""

    description: str
    key: str
    """Meaning of the record key."""
    per_document: bool
    """Keyed by document and partitioned as `KAFKA__PARTITIONS` says; otherwise one partition."""
    per_generation: bool
    """True if a generation may have its own, such as `embedded.g2`, created and deleted with it."""
    written_by: frozenset[Writer]
    read_by_producers: bool
    is_sealed: bool
    """True if all payloads are encrypted with the key of the document, run or fact."""
    retention: timedelta | None
    """None keeps records forever: a rebuild needs all of them."""
    payload_in_feed: bool
    """True if the event feed shows payloads. Others contain texts of documents and queries."""

    def __new__(
        cls,
        name: str,
        description: str,
        *,
        key: str = "document id",
        per_document: bool = True,
        per_generation: bool = False,
        written_by: Iterable[Writer] = ("workers",),
        read_by_producers: bool = False,
        is_sealed: bool = True,
        retention: timedelta | None = None,
        payload_in_feed: bool = False,
    ) -> Topic:
        topic = super().__new__(cls, name)
        topic.description, topic.key = description, key
        topic.per_document, topic.per_generation = per_document, per_generation
        topic.written_by, topic.read_by_producers = frozenset(written_by), read_by_producers
        if "producers" in topic.written_by and name != "raw":
            # Ingress admits what they write; events of all other topics are signed by us.
            raise ValueError(f"Topic {name!r}: producers write `raw` and `raw.NAME` only.")
        topic.is_sealed, topic.retention = is_sealed, retention
        topic.payload_in_feed = payload_in_feed
        return topic

    @property
    def feeds_index(self) -> bool:
        """Return whether an index is built from its events."""
        return self.per_document and not self.read_by_producers

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # Copies are plain names: `dataclasses.asdict` copies every value.
        return str, (str(self),)


RAW = Topic(
    "raw",
    "Documents, amendments and withdrawals from producers.",
    key="chosen by the producer",
    written_by=("producers", "api", "workers"),
    is_sealed=False,
    retention=WEEK,
)
ACCEPTED = Topic("accepted", "Documents, amendments and withdrawals that ingress admitted.")
OCR_DONE = Topic("ocr_done", "Documents as Markdown with positions.", per_generation=True)
CHUNKED = Topic("chunked", "Documents split into parent and child chunks.", per_generation=True)
ENTITIES = Topic("entities", "Names, relations and claims found in chunks.", per_generation=True)
EMBEDDED = Topic("embedded", "Vectors of chunks.", per_generation=True)
OUTCOMES = Topic(
    "outcomes",
    "The outcome of each event of `raw`.",
    read_by_producers=True,
    is_sealed=False,
    retention=WEEK,
    payload_in_feed=True,
)
QUERIES = Topic(
    "queries", "Questions and their answers.", key="run id", per_document=False, written_by=("api",)
)
FEEDBACK = Topic(
    "feedback",
    "Feedback on answers, judgements of passages, facts that people state, and saved questions.",
    key="run id, feedback id, fact id or question id",
    per_document=False,
    written_by=("api",),
)
ANSWERS = Topic(
    "answers",
    "Changed answers of saved questions, without texts.",
    key="question id",
    per_document=False,
    written_by=("api",),
    read_by_producers=True,
    is_sealed=False,
    payload_in_feed=True,
)
CONTROL = Topic(
    "control",
    "Decisions of operators, such as creating or switching generations.",
    key="name or id of the subject",
    per_document=False,
    written_by=("api", "workers"),
    is_sealed=False,
    payload_in_feed=True,
)
DEAD_LETTERS = Topic(
    "dead_letters",
    "Events that a stage could not process.",
    key="document id, or event id if there is none",
    per_document=False,
    written_by=("api", "workers"),
    payload_in_feed=True,
)


def get_base_topic(topic: str) -> str:
    """Return the topic without the generation or producer: `embedded` of `embedded.g2`."""
    return topic.partition(".")[0]


def count_partitions(topics: Iterable[Topic], document_partitions: int) -> dict[str, int]:
    return {topic: document_partitions if topic.per_document else 1 for topic in topics}


def map_retention_ms(topics: Iterable[Topic]) -> dict[str, int]:
    """Map the topics whose records expire to their retention."""
    return {
        topic: round(topic.retention.total_seconds() * 1000)
        for topic in topics
        if topic.retention is not None
    }


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

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


def parse_position(text: str) -> Position:
    """Read what `str` made of a position. Raises InvalidRequest."""
    if found := re.fullmatch(r"([a-z0-9_.-]{1,80})\[([0-9]{1,9})\]@([0-9]{1,18})", text):
        return Position(found[1], int(found[2]), int(found[3]))
    raise InvalidRequest(
        f"{text!r} is no position of the log.",
        remedy="Write topic[partition]@offset, such as accepted[0]@75.",
    )


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
