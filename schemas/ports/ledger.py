"""Ports of the runner to the tables: two transactions around a reaction, and the engine result
cache.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import Protocol
from uuid import UUID

from schemas.amendments import OrderKey
from schemas.events import Event, EventDeadLettered
from schemas.generations import Generation
from schemas.rows import DocumentRow, Row
from schemas.topics import Position, Record


class OrderingPolicy(StrEnum):
    """Decides whether an event takes effect."""

    description: str

    def __new__(cls, value: str, description: str) -> OrderingPolicy:
        policy = str.__new__(cls, value)
        policy._value_, policy.description = value, description
        return policy

    LATEST = "latest", "if later than the document's latest"
    VISIBLE = "visible", "unless older than what is visible or withdrawn"
    ALWAYS = "always", "always"
    ONCE_PER_ID = "once_per_id", "once for each `ce_id`"
    """The payload's hash detects duplicate ids."""


ATTEMPTS_RECORDED_BY_CLAIM = 2
"""Unfinished attempts that claims record. An event with this many is suspected of crashing workers;
from then on `record_attempt` records each attempt separately.
"""


class ClaimStatus(Enum):
    PENDING = "pending"
    """Its rows are stored; its reaction is pending."""
    DONE = "done"
    """Claimed and reacted to before. Nothing to do."""
    SUPERSEDED = "superseded"
    """A later revision or withdrawal came first. Nothing is written; the reaction may report it."""
    DUPLICATE = "duplicate"
    """The same id was used with another payload (ingress only)."""


@dataclass(frozen=True, slots=True)
class VisibilityChange:
    """A revision became visible with this event, or a document was removed by it."""

    document_id: UUID
    order: OrderKey
    n_chunks: int
    previous: OrderKey | None


@dataclass(frozen=True, slots=True)
class ProjectedEvent:
    """An event with the rows of its projection."""

    event: Event  # type: ignore[type-arg]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The result of the first transaction for one event.

    A visibility change is reported again while the reaction is pending.
    """

    status: ClaimStatus
    visibility_change: VisibilityChange | None = None
    is_unchanged: bool = False
    """At transcribe: same bytes, same pipeline fingerprint and same fields as the visible revision,
    and not forced.
    """
    revived_revision: DocumentRow | None = None
    """At transcribe, with a withdrawal that arrived late: a later revision that was identical to
    the withdrawn one, so that it has no text of its own. The reaction transcribes it. Reported
    again while the reaction is pending.
    """
    abandoned_attempts: int = 0
    """Attempts recorded before this claim that no worker finished; 0 for a new event. Claims record
    the first ones even if the reaction never began.
    """
    amended_title: str | None = None
    """At transcribe: the document's amended title, which replaces the revision's."""
    owed_records: tuple[Record, ...] = ()
    """At receive: what is left to publish after the chain of the event was committed."""
    delivery: int = 1
    """At receive: how often the event was claimed. A later claim forbids the chain of this one."""


class Ledger(Protocol):
    """The write side of the tables, for one generation.

    `claim` and `complete` are one transaction each. Both raise DatabaseUnavailable if the
    connection to Postgres is lost, in which case the transaction may or may not have been
    committed. Calling again with the same events is safe.
    """

    @property
    def generation(self) -> Generation: ...

    async def claim(
        self, stage: str, ordering: OrderingPolicy, events: Sequence[ProjectedEvent]
    ) -> list[ClaimResult]:
        """Run the first transaction, with results in the order of the events.

        Locks documents in id order, claims each event, records an attempt at it (up to
        `ATTEMPTS_RECORDED_BY_CLAIM`), writes the rows of events that take effect, and activates
        revisions whose order became complete.
        """

    async def record_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        """Record an attempt at the reaction of each event, so that a crash does not hide it."""

    async def withdraw_attempt(self, stage: str, event_ids: Sequence[UUID]) -> None:
        """Withdraw the last attempt at each event, because it finished normally, successfully or
        not.
        """

    async def complete(
        self, stage: str, completed: Sequence[UUID], dead_letters: Sequence[EventDeadLettered]
    ) -> None:
        """Run the second transaction: mark the reactions as done, or as dead letters, which keep
        their rows.
        """

    async def prune(self, stage: str, topic: str, partition: int, before_offset: int) -> None:
        """Delete the claims of records below this offset, which are not delivered again.

        Never called for ingress.
        """


@dataclass(frozen=True, slots=True)
class RevisionPreview:
    """The decision that a claim would make about a revision, read without locks."""

    result: ClaimResult
    visible_order: OrderKey | None
    is_new: bool
    """False if the revision's rows exist already."""


@dataclass(frozen=True, slots=True)
class StageTiming:
    stage: str
    started_at: datetime
    duration_ms: float


@dataclass(slots=True)
class ChainedEvent:
    """An event that its consumers have processed in memory."""

    event: Event  # type: ignore[type-arg]
    record: Record
    groups: Sequence[str] = ()
    """Consumer groups that need not read it again; none for an outcome."""
    rows: list[Row] = field(default_factory=list)
    timings: list[StageTiming] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChainedDocument:
    """A revision that has passed all stages in memory. Its first event is the accepted one."""

    received_id: UUID
    events: Sequence[ChainedEvent]
    preview: RevisionPreview
    visibility_change: VisibilityChange
    delivery: int = 1
    """How often its event had been claimed at ingress."""


AppendRecords = Callable[[Sequence[Record]], Awaitable[Sequence[Position]]]


class ChainLedger(Protocol):
    """Commits whole documents: their events, their rows and the claim of ingress, or nothing.

    All methods raise DatabaseUnavailable.
    """

    @property
    def generation(self) -> Generation: ...

    async def preview_revisions(self, events: Sequence[ProjectedEvent]) -> list[RevisionPreview]:
        """Return what `claim` would decide now, for at most one revision per document."""

    async def commit_chains(
        self, documents: Sequence[ChainedDocument], append: AppendRecords | None = None
    ) -> dict[UUID, Sequence[Record]]:
        """Commit documents; return the received ids of those that are committed, with the records
        that each owes the log.

        The others have changed since their preview, or the tables reject them. `append` appends to
        a log outside of the tables' database, before the commit. Outcomes are owed there, since
        others act on them: publish them, then complete the events of ingress. Without `append` the
        transaction appends to the tables' log. Raises what `append` raises, but PermanentError. A
        repeated call is safe.
        """

    async def fetch_ended_chains(self, received_ids: Sequence[UUID]) -> Mapping[UUID, bool]:
        """Return whether a chain of this generation was committed for each of these events, without
        those whose chain may still be committed.
        """


@dataclass(frozen=True, slots=True)
class MemoKey:
    """The input of an engine call.

    Tenant and document are part of it so that an erased document's results can be deleted.
    """

    tenant: str
    document_id: UUID
    engine: str
    input_sha256: bytes


class Memo(Protocol):
    """The engine result cache. Losing it costs engine calls, never correctness."""

    async def fetch(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]: ...

    async def store(self, results: Mapping[MemoKey, bytes]) -> None:
        """Store results durably. Existing results are not replaced."""
