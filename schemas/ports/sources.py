"""Ports of the readers of sources: their stored state, and access to external databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from schemas.ports.engines import FetchedFile
from schemas.sources import (
    DeclaredSource,
    EmittedState,
    RowChange,
    RowState,
    SequenceMark,
    TableFloors,
)


class SourceTransaction(Protocol):
    """One transaction over the state of a source, serialized per source. Atomic."""

    async def fetch_floors(self) -> Mapping[str, TableFloors]:
        """Return the floors by table."""

    async def fetch_rows(self, keys: Collection[str]) -> dict[str, RowState]:
        """Return the rows with these keys, and the rows that they took their key from or gave it
        to.
        """

    async def save_changes(
        self, changes: Sequence[RowChange], emitted: Mapping[str, EmittedState]
    ) -> None:
        """Save changes. Changes that are stored already stay as they are."""

    async def raise_floors(
        self,
        table: str,
        *,
        truncated_at: SequenceMark | None = None,
        snapshot_started_at: SequenceMark | None = None,
    ) -> None:
        """Raise the floors of a table. A floor never decreases."""

    async def record_progress(self, topic: str, partition: int, next_offset: int) -> None:
        """Record that everything below `next_offset` is stored."""

    async def record_snapshot_end(
        self, table: str, mark: SequenceMark, topic: str, end_offsets: Mapping[int, int]
    ) -> None:
        """Record the end of a full snapshot.

        Rows that it did not find are withdrawn once `end_offsets` have been read.
        """


@dataclass(frozen=True, slots=True)
class EndedSnapshot:
    """A completed snapshot whose missing rows are not withdrawn yet."""

    table: str
    mark: SequenceMark
    topic: str
    unread_offsets: Mapping[int, tuple[int, int]]
    """Partition → range of offsets that are not stored yet.

    Empty once everything that the snapshot read is stored.
    """


@dataclass(frozen=True, slots=True)
class UntrackedDocument:
    """A document of the source that the stored state does not know, because the state was lost."""

    external_id: str
    mark: SequenceMark


class SourceStore(Protocol):
    """State of sources by name.

    Losing it costs reading the source again. Every call may raise DatabaseUnavailable.
    """

    def begin_transaction(self, source: str) -> AbstractAsyncContextManager[SourceTransaction]: ...

    async def mark_emitted(self, source: str, emitted: Mapping[str, EmittedState]) -> None:
        """Mark events as acknowledged by the log. A row that changed meanwhile stays pending."""

    async def fetch_live_below(
        self, source: str, table: str, mark: SequenceMark, after: str, limit: int
    ) -> list[str]:
        """Return keys after `after`, in order, of live documents whose last event is below the
        mark.
        """

    async def fetch_pending(self, source: str, after: str, limit: int) -> list[str]: ...

    async def fetch_untracked(
        self, source: str, ce_source: str, mark: SequenceMark, after: str, limit: int
    ) -> list[UntrackedDocument]: ...

    async def fetch_ended_snapshots(self, source: str) -> list[EndedSnapshot]: ...

    async def mark_snapshot_swept(self, source: str, table: str, mark: SequenceMark) -> None: ...

    async def fetch_state_id(self, source: str) -> str:
        """Return an id of this state, which changes if the state is lost, so that a reader starts
        over.
        """

    async def has_state(self, source: str) -> bool: ...

    async def record_change_time(self, source: str) -> None:
        """Record the time of the last change that the source has published."""

    async def set_note(self, source: str, key: str, value: Mapping[str, Any] | None) -> None:
        """Store a named value for the reader. None deletes it."""

    async def set_notes(self, source: str, notes: Mapping[str, Mapping[str, Any]]) -> None:
        """Store named values in one transaction."""

    async def fetch_notes(self, source: str) -> dict[str, dict[str, Any]]: ...

    async def delete_state(self, source: str) -> None:
        """Delete the state of a removed source."""

    def open_session(self, owner: UUID) -> AbstractAsyncContextManager[asyncio.Event]:
        """Open the session in which an owner may hold leases. Its event is set when it is lost.

        Other owners acquire the leases of an owner without a session at once.
        """

    async def acquire_lease(self, source: str, owner: UUID, lease_s: float) -> bool:
        """Acquire or renew the exclusive lease on a source. Returns whether this owner holds it."""

    async def release_lease(self, source: str, owner: UUID) -> None: ...


class DeclaredSources(Protocol):
    async def fetch_sources(self) -> list[DeclaredSource]: ...

    async def fetch_external_ids(self, ce_source: str, after: str, limit: int) -> list[str]:
        """Return the external ids of documents that are not withdrawn, in order."""


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """The current state of a replication slot.

    `is_lost` if the database removed changes before they were read.
    """

    exists: bool
    is_lost: bool = False
    confirmed_sequence: int = 0
    """The slot returns no changes from before this number."""
    end_sequence: int = 0
    """End of the database's write-ahead log."""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """All rows of a table at one moment, in batches, as text by column.

    Every change that the slot returns is later than `sequence`.
    """

    sequence: int
    rows: AsyncIterator[Sequence[Mapping[str, str | None]]]


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    sequence: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class PeekedChanges:
    """Changes in order, in batches, none from before `confirmed_sequence`.

    The slot may be advanced to the last change's number, or to `end_sequence` if there are no
    changes.
    """

    confirmed_sequence: int
    end_sequence: int
    batches: AsyncIterator[Sequence[LogicalMessage]]


@dataclass(frozen=True, slots=True)
class RevisitResult:
    """The response of a URL: new content, gone, or (if neither) unchanged."""

    file: FetchedFile | None = None
    is_gone: bool = False
    etag: str | None = None
    last_modified: str | None = None


class UrlRevisitor(Protocol):
    async def revisit(
        self, url: str, key_prefix: str, *, etag: str | None, last_modified: str | None
    ) -> RevisitResult: ...


class ChangeReader(Protocol):
    """Reads one table of an external database by logical decoding.

    Calls raise TransientError if the database does not respond, and ConfigurationError if it denies
    access.
    """

    async def fetch_columns(self) -> tuple[dict[str, int], list[str]]:
        """Return the type oid by column, and the columns of the primary key."""

    async def fetch_slot(self) -> ReplicationSlot: ...

    def open_snapshot(self) -> AbstractAsyncContextManager[TableSnapshot]:
        """Recreate the slot, and read the table as of that moment."""

    def peek(self, limit: int) -> AbstractAsyncContextManager[PeekedChanges]:
        """Return committed changes after the slot's position.

        Returns up to `limit` changes, plus the rest of the last one's transaction, however large it
        is.
        """

    async def advance(self, sequence: int) -> None: ...

    async def drop_slot(self) -> None:
        """Drop the slot and its publication."""

    async def close(self) -> None: ...
