"""What the readers of sources remember, and how they look at a database of somebody else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from schemas.ports.engines import FetchedFile
from schemas.sources import DeclaredSource, EmittedState, RowChange, RowState, SequenceMark, TableFloors


class SourceTransaction(Protocol):
    """One transaction over the state of a source; no two of the same source run at once. Everything is kept, or nothing."""

    async def fetch_floors(self) -> Mapping[str, TableFloors]:
        """By table."""

    async def fetch_rows(self, keys: Collection[str]) -> dict[str, RowState]:
        """These, and those that they got their key from or gave it to."""

    async def save_changes(self, changes: Sequence[RowChange], emitted: Mapping[str, EmittedState]) -> None:
        """Changes that are known already stay as they are."""

    async def raise_floors(self, table: str, *, truncated_at: SequenceMark | None = None, snapshot_started_at: SequenceMark | None = None) -> None:
        """A floor never sinks."""

    async def record_progress(self, topic: str, partition: int, next_offset: int) -> None:
        """Everything below `next_offset` is in the state."""

    async def record_snapshot_end(self, table: str, mark: SequenceMark, topic: str, end_offsets: Mapping[int, int]) -> None:
        """A full snapshot has ended; what it did not read goes when everything below `ends` has passed."""


@dataclass(frozen=True, slots=True)
class EndedSnapshot:
    """A snapshot whose unread rows are not yet withdrawn."""

    table: str
    mark: SequenceMark
    topic: str
    unread_offsets: Mapping[int, tuple[int, int]]
    """Partition → from where to where nothing has come into the state yet. Without any, all that the snapshot read is there."""


@dataclass(frozen=True, slots=True)
class UntrackedDocument:
    """A document of the source that the state does not know: the state was lost meanwhile."""

    external_id: str
    mark: SequenceMark


class SourceStore(Protocol):
    """State of sources by name. Operational: losing it costs reading the source again. Every call may raise DatabaseUnavailable."""

    def begin_transaction(self, source: str) -> AbstractAsyncContextManager[SourceTransaction]: ...

    async def mark_emitted(self, source: str, emitted: Mapping[str, EmittedState]) -> None:
        """The log has these; what was said anew meanwhile stays owed."""

    async def fetch_live_below(self, source: str, table: str, mark: SequenceMark, after: str, limit: int) -> list[str]:
        """Keys, in order from `after`, whose documents were last said below the mark and are live."""

    async def fetch_pending(self, source: str, after: str, limit: int) -> list[str]: ...

    async def fetch_untracked(self, source: str, ce_source: str, mark: SequenceMark, after: str, limit: int) -> list[UntrackedDocument]: ...

    async def fetch_ended_snapshots(self, source: str) -> list[EndedSnapshot]: ...

    async def mark_snapshot_swept(self, source: str, table: str, mark: SequenceMark) -> None: ...

    async def fetch_state_id(self, source: str) -> str:
        """A name for this state: another one after the state was lost, so that a reader begins anew."""

    async def has_state(self, source: str) -> bool:
        """Whether there is any state of it."""

    async def record_change_time(self, source: str) -> None:
        """Set the time of the last change that the source has published."""

    async def set_note(self, source: str, key: str, value: Mapping[str, Any] | None) -> None:
        """A thing to remember under a name; None forgets it."""

    async def fetch_notes(self, source: str) -> dict[str, dict[str, Any]]: ...

    async def delete_state(self, source: str) -> None:
        """Everything of a source that is no more."""

    async def acquire_lease(self, source: str, owner: UUID, lease_s: float) -> bool:
        """Whether this owner alone reads the source for so long from now on; another one may already."""

    async def release_lease(self, source: str, owner: UUID) -> None: ...


class DeclaredSources(Protocol):
    async def fetch_sources(self) -> list[DeclaredSource]: ...

    async def fetch_external_ids(self, ce_source: str, after: str, limit: int) -> list[str]:
        """External ids of what is not withdrawn, in order."""


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """A replication slot as it is now. `lost` when the database dropped what it had not yet been read."""

    exists: bool
    is_lost: bool = False
    confirmed_sequence: int = 0
    """It gives nothing from before."""
    end_sequence: int = 0
    """How far the database's own log reaches."""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """All rows of a table at one moment, as text by column, in batches. Every change that the slot will give is later than `sequence`."""

    sequence: int
    rows: AsyncIterator[Sequence[Mapping[str, str | None]]]


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    sequence: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class PeekedChanges:
    """In batches, in order. Nothing from before `advanced` is among them. Without any the slot may be advanced to `reached`, else to the last change's number."""

    confirmed_sequence: int
    end_sequence: int
    batches: AsyncIterator[Sequence[LogicalMessage]]


@dataclass(frozen=True, slots=True)
class RevisitResult:
    """What an address answered: a new content, that it is gone, or (neither) that nothing has changed."""

    file: FetchedFile | None = None
    is_gone: bool = False
    etag: str | None = None
    last_modified: str | None = None


class UrlRevisitor(Protocol):
    async def revisit(self, url: str, key_prefix: str, *, etag: str | None, last_modified: str | None) -> RevisitResult: ...


class ChangeReader(Protocol):
    """One table of somebody else's database by logical decoding. Calls raise TransientError where the database does not answer, and
    ConfigurationError where it will not let us."""

    async def fetch_columns(self) -> tuple[dict[str, int], list[str]]:
        """Type oid by column, and the columns of the primary key."""

    async def fetch_slot(self) -> ReplicationSlot: ...

    def open_snapshot(self) -> AbstractAsyncContextManager[TableSnapshot]:
        """Makes the slot anew, and reads the table as it was at that very moment."""

    def peek(self, limit: int) -> AbstractAsyncContextManager[PeekedChanges]:
        """Committed changes not yet advanced over: so many, and all of the transaction that the last of them is in, however large it is."""

    async def advance(self, sequence: int) -> None: ...

    async def drop_slot(self) -> None:
        """The slot and its publication."""

    async def close(self) -> None: ...
