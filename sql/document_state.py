"""What is known of a document while its row is locked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemas.amendments import Saying
from schemas.generations import Generation
from schemas.ports.ledger import Counts, Projected
from schemas.rows import OrderKey, SettledRow
from sql.pool import Connection
from sql.statements import statement


@dataclass(slots=True)
class Shown:
    """The visible revision, as later ones are compared with it."""

    content_sha256: str | None
    how: str | None
    fields: dict[str, Any] | None
    until: OrderKey
    """Of the revisions that say the same as this one, without another between them, the last."""
    overtaken: bool
    """A later one says something else."""


@dataclass(slots=True)
class DocumentState:
    latest: OrderKey | None
    withdrawn: OrderKey | None
    revision: int
    accepted_id: UUID | None
    visible: OrderKey | None = None
    chunks: int = 0
    shown: Shown | None = None
    answering: OrderKey | None = None
    """What is visible in the generation that answers, where this one is being built beside it."""

    sayings: list[Saying] | None = None
    """Where there are amendments: what they and all revisions say of the document."""

    @property
    def erased(self) -> bool:
        """Nothing is left of it but its tombstone."""
        return self.latest is None and self.withdrawn is not None

    def is_over(self, order: OrderKey) -> bool:
        """A withdrawal or a later visible revision came first."""
        return _older(order, self.withdrawn) or _older(order, self.visible) or _older(order, self.answering)


States = Mapping[UUID, DocumentState]


class MissingDocuments(Exception):
    """There are no rows to lock yet."""


async def lock_documents(connection: Connection, generation: Generation, counts: Counts, events: Sequence[Projected]) -> dict[UUID, DocumentState]:
    """Lock the documents of these events, lowest id first, then look at them. Raises MissingDocuments where a row has to be made first."""
    ids = sorted(documents_of(events))
    rows = await connection.fetch(f"{statement('lock_documents')} {_strength(counts, events)}", ids)
    if len(rows) < len(ids):
        raise MissingDocuments
    states = {row["id"]: DocumentState(_order(row["latest"]), _order(row["withdrawn"]), row["revision"], row["accepted_id"]) for row in rows}
    # In a statement of its own: one that had waited for the locks would still see the pointers as they were before.
    for row in await connection.fetch(statement("visible_orders"), generation.name, ids):
        state = states[row["document_id"]]
        state.visible, state.chunks = _order(row["ord"]), row["chunks"]
    if generation.state in ("building", "shadow"):
        for row in await connection.fetch(statement("answering_orders"), ids):
            states[row["document_id"]].answering = _order(row["ord"])
    return states


async def add_stubs(connection: Connection, events: Sequence[Projected]) -> None:
    tenants = documents_of(events)
    await connection.execute(statement("add_stubs"), list(tenants), list(tenants.values()))


def documents_of(events: Sequence[Projected]) -> dict[UUID, str]:
    """Document → tenant."""
    return {event.fact.data.document_id: event.fact.data.tenant for event in events}


async def look_at_shown(connection: Connection, generation: str, states: States) -> None:
    visible = [document for document, state in states.items() if state.visible is not None]
    if not visible:
        return
    for row in await connection.fetch(statement("shown"), generation, visible):
        states[row["document_id"]].shown = Shown(row["content_sha256"], row["how"], row["fields"], tuple(row["until"]), row["overtaken"])


def _strength(counts: Counts, events: Sequence[Projected]) -> str:
    """Accepting and withdrawing exclude all else. Parts that may complete a revision exclude each other: two that only shared the document
    would each find the other's part missing. What else is written of a document waits for these and not for each other: written beside a flip, a row of the
    revision that goes would stay behind."""
    if counts == "latest":
        return "for update"
    return "for no key update" if settles(events) else "for share"


def settles(events: Sequence[Projected]) -> bool:
    """Whether they hold parts that may complete a revision."""
    return any(isinstance(row, SettledRow) and row.kind != "entities" for event in events for row in event.rows)


def _older(order: OrderKey, than: OrderKey | None) -> bool:
    return than is not None and order < than


def _order(value: Sequence[int] | None) -> OrderKey | None:
    return None if value is None else tuple(value)
