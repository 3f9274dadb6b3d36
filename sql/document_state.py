"""What is known of a document while its row is locked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemas.amendments import FieldStatement
from schemas.generations import Generation
from schemas.ports.ledger import OrderingPolicy, ProjectedEvent
from schemas.rows import OrderKey, PartCompletedRow
from sql.pool import Connection
from sql.query_loader import load_query


@dataclass(slots=True)
class VisibleRevision:
    """The visible revision, as later ones are compared with it."""

    content_sha256: str | None
    pipeline_fingerprint: str | None
    fields: dict[str, Any] | None
    unchanged_until: OrderKey
    """Of the revisions that say the same as this one, without another between them, the last."""
    is_superseded: bool
    """A later one says something else."""


@dataclass(slots=True)
class DocumentState:
    latest: OrderKey | None
    withdrawn: OrderKey | None
    revision: int
    accepted_id: UUID | None
    visible_order: OrderKey | None = None
    chunks: int = 0
    visible_revision: VisibleRevision | None = None
    live_order: OrderKey | None = None
    """What is visible in the generation that answers, where this one is being built beside it."""

    statements: list[FieldStatement] | None = None
    """Where there are amendments: what they and all revisions say of the document."""

    @property
    def is_erased(self) -> bool:
        """Nothing is left of it but its tombstone."""
        return self.latest is None and self.withdrawn is not None

    def is_superseded(self, order: OrderKey) -> bool:
        """A withdrawal or a later visible revision came first."""
        return _is_older(order, self.withdrawn) or _is_older(order, self.visible_order) or _is_older(order, self.live_order)


States = Mapping[UUID, DocumentState]


class MissingDocuments(Exception):
    """There are no rows to lock yet."""


async def lock_documents(
    connection: Connection, generation: Generation, ordering: OrderingPolicy, events: Sequence[ProjectedEvent]
) -> dict[UUID, DocumentState]:
    """Lock the documents of these events, lowest id first, then look at them. Raises MissingDocuments where a row has to be made first."""
    ids = sorted(collect_tenants(events))
    rows = await connection.fetch(f"{load_query('lock_documents')} {_choose_lock_clause(ordering, events)}", ids)
    if len(rows) < len(ids):
        raise MissingDocuments
    states = {row["id"]: DocumentState(_parse_order(row["latest"]), _parse_order(row["withdrawn"]), row["revision"], row["accepted_id"]) for row in rows}
    # In a statement of its own: one that had waited for the locks would still see the pointers as they were before.
    for row in await connection.fetch(load_query("visible_orders"), generation.name, ids):
        state = states[row["document_id"]]
        state.visible_order, state.chunks = _parse_order(row["ord"]), row["chunks"]
    if generation.state in ("building", "shadow"):
        for row in await connection.fetch(load_query("live_visible_orders"), ids):
            states[row["document_id"]].live_order = _parse_order(row["ord"])
    return states


async def add_stubs(connection: Connection, events: Sequence[ProjectedEvent]) -> None:
    tenants = collect_tenants(events)
    await connection.execute(load_query("add_stubs"), list(tenants), list(tenants.values()))


def collect_tenants(events: Sequence[ProjectedEvent]) -> dict[UUID, str]:
    """Document → tenant."""
    return {event.event.data.document_id: event.event.data.tenant for event in events}


async def load_visible_revisions(connection: Connection, generation: str, states: States) -> None:
    visible_ids = [document for document, state in states.items() if state.visible_order is not None]
    if not visible_ids:
        return
    for row in await connection.fetch(load_query("visible_revisions"), generation, visible_ids):
        states[row["document_id"]].visible_revision = VisibleRevision(row["content_sha256"], row["how"], row["fields"], tuple(row["until"]), row["overtaken"])


def _choose_lock_clause(ordering: OrderingPolicy, events: Sequence[ProjectedEvent]) -> str:
    """Accepting and withdrawing exclude all else. Parts that may complete a revision exclude each other: two that only shared the document
    would each find the other's part missing. What else is written of a document waits for these and not for each other: written beside a flip, a row of the
    revision that goes would stay behind."""
    if ordering == "latest":
        return "for update"
    return "for no key update" if has_completing_parts(events) else "for share"


def has_completing_parts(events: Sequence[ProjectedEvent]) -> bool:
    """Whether they hold parts that may complete a revision."""
    return any(isinstance(row, PartCompletedRow) and row.kind != "entities" for event in events for row in event.rows)


def _is_older(order: OrderKey, other: OrderKey | None) -> bool:
    return other is not None and order < other


def _parse_order(value: Sequence[int] | None) -> OrderKey | None:
    return None if value is None else tuple(value)
