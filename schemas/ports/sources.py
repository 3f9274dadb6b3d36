"""What the readers of sources remember, and how they look at a database of somebody else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from schemas.ports.engines import Fetched
from schemas.sources import Change, DeclaredSource, Floors, Mark, RowState, Said


class Turn(Protocol):
    """One transaction over the state of a source; no two of the same source run at once. Everything is kept, or nothing."""

    async def floors(self) -> Mapping[str, Floors]:
        """By table."""

    async def rows(self, keys: Collection[str]) -> dict[str, RowState]:
        """These, and those that they got their key from or gave it to."""

    async def save(self, changes: Sequence[Change], said: Mapping[str, Said]) -> None:
        """Changes that are known already stay as they are."""

    async def raise_floors(self, table: str, *, truncated: Mark | None = None, read: Mark | None = None) -> None:
        """A floor never sinks."""

    async def passed(self, topic: str, partition: int, next_offset: int) -> None:
        """Everything below `next_offset` is in the state."""

    async def snapshot_ends(self, table: str, mark: Mark, topic: str, ends: Mapping[int, int]) -> None:
        """A full snapshot has ended; what it did not read goes when everything below `ends` has passed."""


@dataclass(frozen=True, slots=True)
class EndedSnapshot:
    """A snapshot whose unread rows are not yet withdrawn."""

    table: str
    mark: Mark
    topic: str
    unread: Mapping[int, tuple[int, int]]
    """Partition → from where to where nothing has come into the state yet. Without any, all that the snapshot read is there."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A document of the source that the state does not know: the state was lost meanwhile."""

    external_id: str
    mark: Mark


class SourceStore(Protocol):
    """State of sources by name. Operational: losing it costs reading the source again. Every call may raise DatabaseUnavailable."""

    def turn(self, source: str) -> AbstractAsyncContextManager[Turn]: ...

    async def told(self, source: str, said: Mapping[str, Said]) -> None:
        """The log has these; what was said anew meanwhile stays owed."""

    async def live_below(self, source: str, table: str, mark: Mark, after: str, limit: int) -> list[str]:
        """Keys, in order from `after`, whose documents were last said below the mark and are live."""

    async def owed(self, source: str, after: str, limit: int) -> list[str]: ...

    async def strangers(self, source: str, ce_source: str, mark: Mark, after: str, limit: int) -> list[Stranger]: ...

    async def ended_snapshots(self, source: str) -> list[EndedSnapshot]: ...

    async def snapshot_swept(self, source: str, table: str, mark: Mark) -> None: ...

    async def reader(self, source: str) -> str:
        """A name for this state: another one after the state was lost, so that a reader begins anew."""

    async def remembers(self, source: str) -> bool:
        """Whether there is any state of it."""

    async def note_change(self, source: str) -> None:
        """Set the time of the last change that the source has published."""

    async def note(self, source: str, key: str, value: Mapping[str, Any] | None) -> None:
        """A thing to remember under a name; None forgets it."""

    async def notes(self, source: str) -> dict[str, dict[str, Any]]: ...

    async def forget(self, source: str) -> None:
        """Everything of a source that is no more."""

    async def hold(self, source: str, owner: UUID, seconds: float) -> bool:
        """Whether this owner alone reads the source for so long from now on; another one may already."""

    async def release(self, source: str, owner: UUID) -> None: ...


class DeclaredSources(Protocol):
    async def declared(self) -> list[DeclaredSource]: ...

    async def documents(self, ce_source: str, after: str, limit: int) -> list[str]:
        """External ids of what is not withdrawn, in order."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A replication slot as it is now. `lost` when the database dropped what it had not yet been read."""

    exists: bool
    lost: bool = False
    advanced: int = 0
    """It gives nothing from before."""
    written: int = 0
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

    advanced: int
    reached: int
    batches: AsyncIterator[Sequence[LogicalMessage]]


@dataclass(frozen=True, slots=True)
class Revisited:
    """What an address answered: a new content, that it is gone, or (neither) that nothing has changed."""

    fetched: Fetched | None = None
    gone: bool = False
    etag: str | None = None
    last_modified: str | None = None


class Revisitor(Protocol):
    async def revisit(self, url: str, key_prefix: str, *, etag: str | None, last_modified: str | None) -> Revisited: ...


class ChangeReader(Protocol):
    """One table of somebody else's database by logical decoding. Calls raise TransientError where the database does not answer, and
    ConfigurationError where it will not let us."""

    async def columns(self) -> tuple[dict[str, int], list[str]]:
        """Type oid by column, and the columns of the primary key."""

    async def slot(self) -> Slot: ...

    def snapshot(self) -> AbstractAsyncContextManager[TableSnapshot]:
        """Makes the slot anew, and reads the table as it was at that very moment."""

    def peek(self, limit: int) -> AbstractAsyncContextManager[PeekedChanges]:
        """Committed changes not yet advanced over: so many, and all of the transaction that the last of them is in, however large it is."""

    async def advance(self, sequence: int) -> None: ...

    async def drop(self) -> None:
        """The slot and its publication."""

    async def close(self) -> None: ...
