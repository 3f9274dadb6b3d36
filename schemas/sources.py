"""Sources: what documents are taken from, and the changes of a row on their way to becoming one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from schemas.values import Value

Column = Annotated[str, Field(min_length=1, max_length=255)]
ColumnType = Literal["date", "timestamp_ms", "timestamp_us", "timestamp_ns", "time_ms", "time_us", "time_ns", "decimal", "bytes", "json"]
NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,39}$"
SLOT_PATTERN = r"^[a-z0-9_]{1,63}$"
TABLE_PATTERN = r"^[^.]+(\.[^.]+)?$"
URL_PATTERN = r"^https?://"


class ColumnEncoding(Value):
    """How a column is written where its events carry no schema."""

    type: ColumnType
    scale: int = Field(0, ge=0, le=1000, description="of a decimal that comes as bytes")


class RowMapping(Value):
    """Which columns of a row are what of a document."""

    body: list[Column] = Field(min_length=1, description="joined by blank lines; a single column of bytes is taken as a file")
    id: list[Column] = Field(default=[], description="the document's external id, joined by `/`; by default the columns of the row's key")
    title: Column | None = None
    language: Column | None = None
    filename: Column | None = Field(None, description="of a body of bytes")
    metadata: list[Column] = []
    encodings: dict[str, ColumnEncoding] = Field({}, description="of columns whose events carry no schema")

    @property
    def columns(self) -> list[str]:
        """All that are read, each once."""
        optional_columns = [name for name in (self.title, self.language, self.filename) if name]
        return list(dict.fromkeys([*self.id, *self.body, *self.metadata, *optional_columns]))


class DebeziumSource(Value):
    kind: Literal["debezium"] = "debezium"
    topic: str = Field(min_length=1, max_length=249, description="as it is called on the broker, without our prefix")
    mapping: RowMapping


class PostgresSource(Value):
    kind: Literal["postgres"] = "postgres"
    dsn: str | None = Field(None, description="refused: the address is ANABRANCH_SOURCES__NAME of the worker")
    table: str = Field(pattern=TABLE_PATTERN, description="schema.table; the schema is `public` where none is given")
    slot: str | None = Field(None, pattern=SLOT_PATTERN, description="of its replication slot and publication; by default `anabranch_` and the name")
    mapping: RowMapping

    @property
    def schema_and_table(self) -> tuple[str, str]:
        """Schema and table."""
        schema, _, table = self.table.rpartition(".")
        return schema or "public", table


class FolderSource(Value):
    kind: Literal["folder"] = "folder"
    path: str = Field(min_length=1, description="absolute, on the machine of the worker")
    glob: str = Field("*", description="of file names, at any depth")
    every_s: float = Field(2.0, ge=0.05, le=86_400, description="between two looks")


class UrlsSource(Value):
    kind: Literal["urls"] = "urls"
    urls: list[Annotated[str, Field(pattern=URL_PATTERN, max_length=1024)]] = Field(min_length=1, max_length=10_000)
    every_s: float = Field(3600.0, ge=0.05, le=31_536_000, description="between two requests for the same address")
    gone_after: int = Field(3, ge=1, le=100, description="answers 404 or 410 in a row until the document is withdrawn")


class SourceRequest(Value):
    """What a source is told once."""

    name: str = Field(pattern=NAME_PATTERN)
    collection: str | None = Field(None, max_length=255)
    tags: list[Annotated[str, Field(max_length=255)]] = Field(default=[], max_length=256)
    takes: Annotated[DebeziumSource | PostgresSource | FolderSource | UrlsSource, Field(discriminator="kind")]


class SourceSpec(SourceRequest):
    """A source of a tenant. Its documents belong to `ce_source`."""

    tenant: str = Field("default", min_length=1, max_length=255)

    @property
    def ce_source(self) -> str:
        return f"anabranch/source/{self.name}"


class SequenceReset(Value):
    """From here on the numbers of a source begin anew: its database was restored. `begins` says where in its topic, by partition."""

    epoch: int
    begins: dict[int, int] = {}


@dataclass(frozen=True, slots=True)
class DeclaredSource:
    """A source as the decisions on `control` leave it."""

    spec: SourceSpec
    epoch: int
    resets: tuple[SequenceReset, ...] = ()
    removed: bool = False
    withdraw: bool = False
    """With its removal its documents go too."""

    def epoch_at(self, partition: int, offset: int) -> int:
        """The epoch of a record of its topic."""
        later_epochs = [reset.epoch for reset in self.resets if offset >= reset.begins.get(partition, 0)]
        initial_epoch = min((reset.epoch - 1 for reset in self.resets), default=self.epoch)
        return max(later_epochs, default=initial_epoch)


SequenceMark = tuple[int, int]
"""Epoch and number: what a floor is compared by."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row as one change leaves it. `columns` holds the mapped columns that the change knows, `unknown` names those it says are as before."""

    key: str
    table: str
    epoch: int
    sequence: int
    is_snapshot_read: bool = False
    """By a snapshot: of a change with the same number it is the earlier one."""
    is_deleted: bool = False
    columns: Mapping[str, Any] = field(default_factory=dict)
    unchanged_columns: tuple[str, ...] = ()
    old_key: str | None = None
    """Where the row's key changed with this: what the row was called before."""

    @property
    def mark(self) -> SequenceMark:
        return self.epoch, self.sequence

    @property
    def order(self) -> tuple[int, int, int]:
        return self.epoch, self.sequence, 0 if self.is_snapshot_read else 1


@dataclass(frozen=True, slots=True)
class TableFloors:
    """Of one table: the latest TRUNCATE, and the beginning of the latest full snapshot that has ended."""

    truncated_at: SequenceMark = (0, 0)
    snapshot_started_at: SequenceMark = (0, 0)

    @property
    def highest(self) -> SequenceMark:
        return max(self.truncated_at, self.snapshot_started_at)

    def is_obsolete(self, change: RowChange) -> bool:
        """Whether the change is of a row that is no more: it came before a TRUNCATE, or a later snapshot has not seen the row."""
        return change.mark <= self.truncated_at or change.mark < self.snapshot_started_at


RELEASE_STEP = 2**62 + 1
"""A step behind every correction and every amendment of the same number."""


@dataclass(frozen=True, slots=True)
class ReleasedId:
    """An external id that a row gave up. Its end stands right behind what the row said of it last, so before all that a row says that took it since:
    whichever of the two is heard of first."""

    external_id: str
    mark: SequenceMark
    step: int


@dataclass(frozen=True, slots=True)
class EmittedState:
    """What `raw` was told of a row last. `step` counts corrections of the same number: a text that came late. `owed` until the log has it."""

    table: str
    epoch: int
    sequence: int
    step: int
    digest: str
    external_id: str
    is_live: bool
    released_ids: tuple[ReleasedId, ...] = ()
    """What the row gave up and the log may not know of yet; its own document too, where it is not `live`."""
    is_pending: bool = True

    @property
    def mark(self) -> SequenceMark:
        return self.epoch, self.sequence


@dataclass(frozen=True, slots=True)
class RowState:
    """All that is known of a row."""

    changes: tuple[RowChange, ...] = ()
    emitted: EmittedState | None = None
