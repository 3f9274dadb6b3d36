"""What the runner asks of the tables: two transactions around a reaction, and a memo of what engines have said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol
from uuid import UUID

from schemas.events import Event, EventDeadLettered
from schemas.generations import Generation
from schemas.rows import DocumentRow, OrderKey, Row

OrderingPolicy = Literal["latest", "visible", "always", "door"]
"""What decides whether an event counts: its order against the latest of its document (`latest`, at transcribe), against what is
visible and withdrawn (`visible`), nothing (`always`: control, runs, dead letters), or, at the door, its id against the payload hash (`door`)."""

ATTEMPTS_RECORDED_BY_CLAIM = 2
"""Attempts at an event that its claims note. With so many unended it is suspected of ending workers, and each further attempt is noted by `begin`."""


class ClaimStatus(Enum):
    PENDING = "owed"
    """Its rows are there; the reaction is owed."""
    DONE = "done"
    """Claimed and reacted to before: nothing to do."""
    SUPERSEDED = "superseded"
    """A later revision or a withdrawal came first: nothing was written, the reaction may say so."""
    DUPLICATE = "duplicate"
    """The same id came with another payload (door only)."""


@dataclass(frozen=True, slots=True)
class VisibilityChange:
    """A revision became visible with this event (or a document was removed by it)."""

    document_id: UUID
    order: OrderKey
    n_chunks: int
    previous: OrderKey | None


@dataclass(frozen=True, slots=True)
class ProjectedEvent:
    """A fact and the rows that its projection gave."""

    event: Event  # type: ignore[type-arg]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The answer of the first transaction for one event, in the order asked. A flip is reported again while the reaction is owed."""

    status: ClaimStatus
    visibility_change: VisibilityChange | None = None
    is_unchanged: bool = False
    """At transcribe: same bytes, same `how` of transcribe, same fields as the visible revision, and not forced."""
    revived_revision: DocumentRow | None = None
    """At transcribe, with a withdrawal that came late: the last revision after it that had changed nothing, and so had no text of its own but lived on
    what is withdrawn now. The reaction gives it one. Told again while the reaction is owed."""
    abandoned_attempts: int = 0
    """Attempts noted at its reaction before this claim, that no worker has ended. The first ones are noted by claims, also where the reaction had not begun; 0 for a new event."""
    amended_title: str | None = None
    """At transcribe: the document's title by an amendment that holds, in place of the one that the revision came with."""


class Ledger(Protocol):
    """The write side of the tables, for one generation. Both calls are one transaction each; both raise DatabaseUnavailable when Postgres is lost,
    and then nobody knows whether they were committed: calling again with the same events is right in either case."""

    @property
    def generation(self) -> Generation: ...

    async def claim(self, stage: str, ordering: OrderingPolicy, events: Sequence[ProjectedEvent]) -> list[ClaimResult]:
        """The first transaction: lock documents in id order, claim each event and note an attempt at it while fewer than `ATTEMPTS_RECORDED_BY_CLAIM` are noted, write the rows of those that count, move `visible` where an order became complete."""

    async def record_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        """Note another attempt at the reaction of each event, so that it is known even if this process does not live to end it."""

    async def withdraw_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        """Take back the last attempt at each: it ended in order, well or not."""

    async def complete(self, stage: str, completed: Sequence[UUID], dead_letters: Sequence[EventDeadLettered]) -> None:
        """The second transaction: the reaction of these events is done, or given up (a buried reaction keeps its rows)."""

    async def prune(self, stage: str, topic: str, partition: int, before_offset: int) -> None:
        """Forget claims of what stands below this offset, which is not delivered again. Never called for the door."""


@dataclass(frozen=True, slots=True)
class MemoKey:
    """What an engine was asked: by whom (an erased document takes its answers along), which engine, which input."""

    tenant: str
    document_id: UUID
    engine: str
    input_sha256: bytes


class Memo(Protocol):
    """What engines have answered. Operational: losing it costs engine calls, never correctness."""

    async def fetch(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]: ...

    async def store(self, results: Mapping[MemoKey, bytes]) -> None:
        """Durable when it returns; an answer that is there already stays."""


class GenerationStore(Protocol):
    async def fetch_live(self) -> Generation | None: ...

    async def fetch(self, name: str) -> Generation | None: ...

    async def fetch_undropped(self) -> list[Generation]: ...
