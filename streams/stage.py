"""A stage is data and two functions. The runner does the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.events import Event, EventData
from schemas.ports.ledger import ClaimStatus, OrderingPolicy, VisibilityChange
from schemas.ports.stage_ports import StagePorts
from schemas.rows import DocumentRow, Row


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """A fact whose reaction is owed, and what the first transaction found."""

    event: Event[Any]
    status: ClaimStatus
    visibility_change: VisibilityChange | None = None
    is_unchanged: bool = False
    revived_revision: DocumentRow | None = None
    amended_title: str | None = None


@dataclass(frozen=True, slots=True)
class Emission:
    """A new fact that a reaction wants published. Its id follows from stage, `how`, cause and ordinal, unless `id_parts` names other parts
    (an outcome is said once, whichever event completes the document)."""

    cause: Event[Any]
    data: EventData
    ordinal: int = 0
    id_parts: tuple[str, ...] | None = None


Projection = Callable[[Event[Any]], Iterable[Row]]
Reaction = Callable[[Sequence[PendingEvent], StagePorts], Awaitable[list[Emission]]]


def project_nothing(event: Event[Any]) -> Iterable[Row]:
    """The projection of a stage that only reacts."""
    return ()


def resolve_no_host(event: Event[Any]) -> str | None:
    return None


def never_delegate(pending_event: PendingEvent) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the pipeline. `version` is raised only when its output changes. `batch` is how many events one reaction takes at most;
    `deadline_s` bounds one reaction."""

    name: str
    topic: str
    version: int
    ordering_policy: OrderingPolicy
    project: Projection = project_nothing
    react: Reaction | None = None
    batch_size: int = 1
    deadline_s: float = 600.0
    fails_document: bool = True
    """False where a buried event costs a document its graph only, or no document at all."""
    output_topic: str | None = None
    """The topic of what it states, outcomes aside: of several generations that share it, one states it for all."""
    serves_all_generations: bool = False
    """True where one reader serves all generations (the door, control, runs, dead letters)."""
    resolve_host: Callable[[Event[Any]], str | None] = resolve_no_host
    """The foreign server that a reaction waits for. Such reactions have places of their own, so that a slow server holds up none but its own."""
    delegate_if: Callable[[PendingEvent], bool] = never_delegate
    """Whether a reaction is left to another program: it stays owed in the log, unacknowledged, and what comes behind it goes on."""
