"""Sources of documents, and the changes of a table row on their way to a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.values import Value

Column = Annotated[str, Field(min_length=1, max_length=255)]
ColumnType = Literal[
    "date",
    "timestamp_ms",
    "timestamp_us",
    "timestamp_ns",
    "time_ms",
    "time_us",
    "time_ns",
    "decimal",
    "bytes",
    "json",
]
NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,39}$"
SLOT_PATTERN = r"^[a-z0-9_]{1,63}$"
TABLE_PATTERN = r"^[^.]+(\.[^.]+)?$"
URL_PATTERN = r"^https?://"


class ColumnEncoding(Value):
    """How to decode a column whose events carry no schema."""

    type: ColumnType = Field(description="Type of the encoded value.")
    scale: int = Field(0, ge=0, le=1000, description="Scale of a decimal that is encoded as bytes.")


class RowMapping(Value):
    """How the columns of a row map to a document."""

    body: list[Column] = Field(min_length=1)
    """Columns of the text, joined by blank lines. A single column of bytes is treated as a file."""
    id: list[Column] = []
    """Columns of the external id, joined by `/`. Defaults to the columns of the row's key."""
    title: Column | None = Field(None, description="Column of the title.")
    language: Column | None = Field(None, description="Column of the language.")
    filename: Column | None = None
    """Column of the file name, if the body is a file."""
    metadata: list[Column] = Field([], description="Columns to store as metadata.")
    encodings: dict[str, ColumnEncoding] = {}
    """Encodings of columns whose events carry no schema."""

    @property
    def columns(self) -> list[str]:
        """All mapped columns, without duplicates."""
        optional_columns = [name for name in (self.title, self.language, self.filename) if name]
        return list(dict.fromkeys([*self.id, *self.body, *self.metadata, *optional_columns]))


class DebeziumSource(Value):
    """Read changes from a Debezium topic."""

    kind: Literal["debezium"] = Field("debezium", description="Kind of source.")
    topic: str = Field(min_length=1, max_length=249)
    """Topic name on the broker, without the prefix of this system."""
    mapping: RowMapping = Field(description="How the columns map to a document.")


class PostgresSource(Value):
    """Read changes of a Postgres table by logical decoding."""

    kind: Literal["postgres"] = Field("postgres", description="Kind of source.")
    dsn: str | None = None
    """Always refused. Set ANABRANCH_SOURCES__NAME on the worker instead."""
    table: str = Field(pattern=TABLE_PATTERN)
    """Table as `schema.table`. The schema defaults to `public`."""
    slot: str | None = Field(None, pattern=SLOT_PATTERN)
    """Name of the replication slot and the publication. Defaults to `anabranch_` and the name of
    the source.
    """
    mapping: RowMapping = Field(description="How the columns map to a document.")

    @property
    def schema_and_table(self) -> tuple[str, str]:
        schema, _, table = self.table.rpartition(".")
        return schema or "public", table


class FolderSource(Value):
    """Read the files of a folder."""

    kind: Literal["folder"] = Field("folder", description="Kind of source.")
    path: str = Field(min_length=1, description="Absolute path on the worker's machine.")
    glob: str = Field("*", description="Pattern for file names, at any depth.")
    include: list[Annotated[str, Field(max_length=255)]] = Field([], max_length=64)
    """Patterns for files that are skipped otherwise: code, locks, temporary and system files."""
    every_s: float = Field(2.0, ge=0.05, le=86_400, description="Seconds between scans.")


class UrlsSource(Value):
    """Fetch a list of URLs."""

    kind: Literal["urls"] = Field("urls", description="Kind of source.")
    urls: list[Annotated[str, Field(pattern=URL_PATTERN, max_length=1024)]] = Field(
        min_length=1, max_length=10_000
    )
    """URLs to fetch."""
    every_s: float = Field(3600.0, ge=0.05, le=31_536_000)
    """Seconds between two requests for the same URL."""
    withdraw_after_misses: int = Field(3, ge=1, le=100)
    """Consecutive responses with status 404 or 410 after which the document is withdrawn."""


class SourceRequest(Value):
    """A source to add."""

    name: str = Field(pattern=NAME_PATTERN, description="Name of the source.")
    collection: str | None = Field(None, max_length=255)
    """Collection for the documents of the source."""
    tags: list[Annotated[str, Field(max_length=255)]] = Field(default=[], max_length=256)
    """Tags for the documents of the source."""
    connector: Annotated[
        DebeziumSource | PostgresSource | FolderSource | UrlsSource, Field(discriminator="kind")
    ]
    """Kind of source and its settings."""


class SourceSpec(SourceRequest):
    """A source of a tenant. Its documents belong to `ce_source`."""

    tenant: str = Field("default", min_length=1, max_length=255)

    @property
    def ce_source(self) -> str:
        return f"anabranch/source/{self.name}"


class SequenceReset(Value):
    """A restart of a source's sequence numbers, because its database was restored."""

    epoch: int = Field(description="Epoch of the numbers after the restart.")
    begins: dict[int, int] = {}
    """First offset of the new epoch in the source's topic, by partition."""


@dataclass(frozen=True, slots=True)
class DeclaredSource:
    """A source as declared by the events on `control`."""

    spec: SourceSpec
    epoch: int
    resets: tuple[SequenceReset, ...] = ()
    removed: bool = False
    withdraw: bool = False
    """Withdraw its documents when it is removed."""

    def epoch_at(self, partition: int, offset: int) -> int:
        """Return the epoch of the record at this position of the source's topic."""
        later_epochs = [
            reset.epoch for reset in self.resets if offset >= reset.begins.get(partition, 0)
        ]
        # `epoch` is the latest one; the records before the first reset belong to the one before it.
        initial_epoch = min((reset.epoch - 1 for reset in self.resets), default=self.epoch)
        return max(later_epochs, default=initial_epoch)


SequenceMark = tuple[int, int]
"""Epoch and sequence number, compared with a floor."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """The state of one row after one change.

    `columns` has the mapped columns whose values the change carries. `unchanged_columns` are
    columns that it reports as unchanged, without their values.
    """

    key: str
    table: str
    epoch: int
    sequence: int
    is_snapshot_read: bool = False
    """Read by a snapshot. Ordered before a change with the same number."""
    is_deleted: bool = False
    columns: Mapping[str, Any] = field(default_factory=dict)
    unchanged_columns: tuple[str, ...] = ()
    old_key: str | None = None
    """The previous key, if this change renamed the row."""

    @property
    def mark(self) -> SequenceMark:
        return self.epoch, self.sequence

    @property
    def order(self) -> tuple[int, int, int]:
        return self.epoch, self.sequence, 0 if self.is_snapshot_read else 1


@dataclass(frozen=True, slots=True)
class TableFloors:
    """Per table: the latest TRUNCATE, and the start of the latest complete full snapshot."""

    truncated_at: SequenceMark = (0, 0)
    snapshot_started_at: SequenceMark = (0, 0)

    @property
    def highest(self) -> SequenceMark:
        return max(self.truncated_at, self.snapshot_started_at)

    def is_obsolete(self, change: RowChange) -> bool:
        """Return whether the changed row no longer exists.

        That holds if it changed before a TRUNCATE, or if a later snapshot did not find it.
        """
        return change.mark <= self.truncated_at or change.mark < self.snapshot_started_at


RELEASE_STEP = 2**62 + 1
"""Orders the release of an id after every correction and amendment with the same number."""


@dataclass(frozen=True, slots=True)
class ReleasedId:
    """An external id that a row no longer uses.

    Its withdrawal is ordered directly after the last event of the row that released it, and so
    before all events of a row that has taken it since, whichever of the two changes is read first.
    """

    external_id: str
    mark: SequenceMark
    step: int


@dataclass(frozen=True, slots=True)
class EmittedState:
    """The last event that was published to `raw` for a row.

    `step` counts corrections under the same number, such as a text that arrived late. `is_pending`
    until the log has acknowledged the event.
    """

    table: str
    epoch: int
    sequence: int
    step: int
    digest: str
    external_id: str
    is_live: bool
    released_ids: tuple[ReleasedId, ...] = ()
    """Ids whose withdrawal the log may not have acknowledged yet, including the row's own if it is
    not live.
    """
    is_pending: bool = True

    @property
    def mark(self) -> SequenceMark:
        return self.epoch, self.sequence


@dataclass(frozen=True, slots=True)
class RowState:
    """The stored state of a row."""

    changes: tuple[RowChange, ...] = ()
    emitted: EmittedState | None = None
