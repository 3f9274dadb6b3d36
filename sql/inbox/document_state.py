"""Load the state of documents while their rows are locked."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import asyncpg

from schemas.amendments import OrderKey, normalize_readers
from schemas.generations import Generation
from schemas.ports.ledger import OrderingPolicy, ProjectedEvent
from schemas.rows import PartCompletedRow
from sql.inbox.revision_policy import DocumentState, States, VisibleRevision
from sql.pool import Connection
from sql.query_loader import load_query


class MissingDocuments(Exception):
    """Documents have no rows to lock yet."""


async def lock_documents(
    connection: Connection,
    generation: Generation,
    ordering: OrderingPolicy,
    events: Sequence[ProjectedEvent],
) -> tuple[dict[UUID, DocumentState], set[UUID]]:
    """Lock the documents of these events and load their state.

    Returns it with the destroyed keys of these events. Raises MissingDocuments if a document has no
    row.
    """
    # All writers lock in id order, so that they cannot deadlock.
    ids = sorted(collect_tenants(events))
    rows = await connection.fetch(
        f"{load_query('lock_documents')} {_choose_lock_clause(ordering, events)}", ids
    )
    # Inserting here would take locks out of id order; the caller inserts and restarts.
    if len(rows) < len(ids):
        raise MissingDocuments
    return await _load_states(connection, generation, events, rows)


async def read_documents(
    connection: Connection, generation: Generation, events: Sequence[ProjectedEvent]
) -> dict[UUID, DocumentState]:
    """Load the state of the documents of these events without locks; it may change at once."""
    new_states = {
        document: DocumentState(None, None, 0, None) for document in collect_tenants(events)
    }
    rows = await connection.fetch(load_query("lock_documents"), list(new_states))
    if not rows:
        return new_states
    states, _ = await _load_states(connection, generation, events, rows)
    return new_states | states


async def _load_states(
    connection: Connection,
    generation: Generation,
    events: Sequence[ProjectedEvent],
    rows: Sequence[asyncpg.Record],
) -> tuple[dict[UUID, DocumentState], set[UUID]]:
    states = {
        row["id"]: DocumentState(
            _parse_order(row["latest"]),
            _parse_order(row["withdrawn"]),
            row["revision"],
            row["accepted_id"],
            readers=normalize_readers(row["readers"]),
        )
        for row in rows
    }
    # A separate statement: under READ COMMITTED the one that waited for the locks reads other
    # tables from its own, older snapshot, and would see the pointers from before the wait.
    destroyed_keys = set[UUID]()
    for row in await connection.fetch(
        load_query("visible_orders_and_destroyed_keys"),
        generation.name,
        list(states),
        {event.event.key for event in events if event.event.key is not None},
    ):
        if row["destroyed_key"] is not None:
            destroyed_keys.add(row["destroyed_key"])
        else:
            state = states[row["document_id"]]
            state.visible_order, state.chunks = _parse_order(row["ord"]), row["chunks"]
    # A build need not load revisions that the live generation has replaced already.
    if generation.state in ("building", "shadow"):
        for row in await connection.fetch(load_query("live_visible_orders"), list(states)):
            states[row["document_id"]].live_order = _parse_order(row["ord"])
    return states, destroyed_keys


async def add_stubs(connection: Connection, events: Sequence[ProjectedEvent]) -> None:
    tenants = collect_tenants(events)
    await connection.execute(load_query("add_stubs"), list(tenants), list(tenants.values()))


def collect_tenants(events: Sequence[ProjectedEvent]) -> dict[UUID, str]:
    """Return the tenant of each document."""
    return {event.event.data.document_id: event.event.data.tenant for event in events}


async def load_visible_revisions(connection: Connection, generation: str, states: States) -> None:
    visible_ids = [
        document for document, state in states.items() if state.visible_order is not None
    ]
    if not visible_ids:
        return
    for row in await connection.fetch(load_query("visible_revisions"), generation, visible_ids):
        states[row["document_id"]].visible_revision = VisibleRevision(
            row["content_sha256"],
            row["how"],
            row["fields"],
            tuple(row["until"]),
            row["is_superseded"],
        )


def _choose_lock_clause(ordering: OrderingPolicy, events: Sequence[ProjectedEvent]) -> str:
    # Accepting and withdrawing a revision exclude everything else.
    if ordering == OrderingPolicy.LATEST:
        return "for update"
    # Parts that may complete a revision exclude each other: under READ COMMITTED two concurrent
    # transactions each miss the other's part, and the revision never becomes visible (100 of 100
    # races). Other rows share the lock, but exclude activation, which would otherwise leave late
    # rows of the previous revision behind.
    return "for no key update" if has_completing_parts(events) else "for share"


def has_completing_parts(events: Sequence[ProjectedEvent]) -> bool:
    """Return whether any event carries a part that may complete a revision."""
    return any(
        isinstance(row, PartCompletedRow) and row.kind != "entities"
        for event in events
        for row in event.rows
    )


def _parse_order(value: Sequence[int] | None) -> OrderKey | None:
    return None if value is None else tuple(value)
