"""A stage is data and two functions. The runner does the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.events import Event, Fact
from schemas.ports.bundle import Ports
from schemas.ports.ledger import Claim, Counts, Flip
from schemas.rows import DocumentRow, Row


@dataclass(frozen=True, slots=True)
class Counted:
    """A fact whose reaction is owed, and what the first transaction found."""

    fact: Fact[Any]
    claim: Claim
    flip: Flip | None = None
    unchanged: bool = False
    revived: DocumentRow | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A new fact that a reaction wants published. Its id follows from stage, `how`, cause and ordinal, unless `id_parts` names other parts
    (an outcome is said once, whichever event completes the document)."""

    cause: Fact[Any]
    data: Event
    ordinal: int = 0
    id_parts: tuple[str, ...] | None = None


Project = Callable[[Fact[Any]], Iterable[Row]]
React = Callable[[Sequence[Counted], Ports], Awaitable[list[Statement]]]


def nothing(fact: Fact[Any]) -> Iterable[Row]:
    """The projection of a stage that only reacts."""
    return ()


def no_host(fact: Fact[Any]) -> str | None:
    return None


def never(counted: Counted) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the pipeline. `version` is raised only when its output changes. `batch` is how many events one reaction takes at most;
    `deadline_s` bounds one reaction."""

    name: str
    topic: str
    version: int
    counts: Counts
    project: Project = nothing
    react: React | None = None
    batch: int = 1
    deadline_s: float = 600.0
    essential: bool = True
    """False where a buried event costs a document its graph only, or no document at all."""
    output: str | None = None
    """The topic of what it states, outcomes aside: of several generations that share it, one states it for all."""
    shared: bool = False
    """True where one reader serves all generations (the door, control, runs, dead letters)."""
    host: Callable[[Fact[Any]], str | None] = no_host
    """The foreign server that a reaction waits for. Such reactions have places of their own, so that a slow server holds up none but its own."""
    left: Callable[[Counted], bool] = never
    """Whether a reaction is left to another program: it stays owed in the log, unacknowledged, and what comes behind it goes on."""
