"""Load the state of documents while their rows are locked, write the rows of their revisions as the
revision policy decided, and activate and withdraw revisions.

The last two move the visible pointer and everything that depends on it: the lexical statistics, the
history, and the removal of older rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from typing import Any
from uuid import UUID

import asyncpg

from schemas.amendments import OrderKey, normalize_readers
from schemas.generations import Generation
from schemas.ports.ledger import ClaimStatus, OrderingPolicy, ProjectedEvent, VisibilityChange
from schemas.rows import ChildRow, DocumentRow, ParentRow, PartCompletedRow, WithdrawalRow
from schemas.values import BlobRef
from sql.database import Connection, format_array, load_query, read_values, replace_nul
from sql.inbox import amendments
from sql.inbox.revision_policy import (
    STORED_FIELDS,
    DocumentState,
    States,
    Verdict,
    VisibleRevision,
    build_fields,
)
from sql.index.derived_tables import DERIVED_TABLES

_ARCHIVED = (ChildRow, ParentRow)
"""Rows whose texts stay in the history."""
DOCUMENT_FIELDS = (
    *("document_id", "tenant", "order", "external_id", "source", "source_uri", "filename"),
    *("media_type", "title", "language", "collection", "tags", "metadata", "document_date"),
    *("content_sha256", "blob", "event_id", "accepted_id", "received_at", "numbered"),
)
WITHDRAWAL_FIELDS = (
    *("document_id", "tenant", "order", "external_id", "source", "event_id", "accepted_id"),
    *("received_at", "numbered"),
)


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


OrdersByDocument = Mapping[UUID, OrderKey]


async def activate_complete_revisions(
    connection: Connection, generation: str, stage: str, verdicts: Sequence[Verdict], states: States
) -> dict[UUID, VisibilityChange]:
    """Activate the revisions whose last part is among these events.

    Returns event → visibility change; a revision's change belongs to the last of its events.
    """
    last_event_by_revision = _find_last_parts(verdicts, states)
    if not last_event_by_revision:
        return {}
    tenants = collect_tenants([verdict.event for verdict in verdicts])
    orders = dict(last_event_by_revision.keys())
    rows = await connection.fetch(
        # One statement, so that pointer and statistics change together.
        load_query("activate_revisions"),
        generation,
        *_to_columns(orders),
        [tenants[document] for document in orders],
        list(last_event_by_revision.values()),
        stage,
    )
    # A document's first revision has nothing to archive.
    if replaced_orders := {
        row["document_id"]: orders[row["document_id"]] for row in rows if row["follows"]
    }:
        await connection.execute(_build_archive_query(), generation, *_to_columns(replaced_orders))
    return {row["event_id"]: _to_visibility_change(row, states) for row in rows}


async def withdraw_revisions(
    connection: Connection, generations: Sequence[str], orders: OrdersByDocument
) -> None:
    """Remove revisions up to these orders from every generation."""
    for generation in generations:
        rows = await connection.fetch(load_query("visible_orders"), generation, list(orders))
        hidden_orders = {
            row["document_id"]: order
            for row in rows
            if (order := tuple(row["ord"])) < orders[row["document_id"]]
        }
        if hidden_orders:
            await connection.execute(
                # Before the rows are deleted, from which the counts are computed.
                load_query("subtract_lexical_counts"),
                generation,
                *_to_columns(hidden_orders),
            )
            await connection.execute(load_query("hide_withdrawn"), generation, *_to_columns(orders))
        # Also where nothing is visible: rows of incomplete revisions have to go as well.
        await connection.execute(_build_archive_query(), generation, *_to_columns(orders))


@cache
def _build_archive_query() -> str:
    """Build the statement that removes the rows of older revisions from every derived table."""
    tables = [table.name for kind, table in DERIVED_TABLES.items() if kind not in _ARCHIVED]
    deletes = [f", {name}_ as (\n{load_query('delete_older_rows', table=name)})" for name in tables]
    return load_query("archive_older_rows", deletes="".join(deletes))


async def archive_late_texts(connection: Connection, verdicts: Sequence[Verdict]) -> None:
    """Copy the texts of superseded revisions into the history, as if they had arrived in time."""
    late_rows = [
        row
        for verdict in verdicts
        if verdict.claim is ClaimStatus.SUPERSEDED
        for row in verdict.event.rows
        if isinstance(row, _ARCHIVED)
    ]
    if late_rows:
        await connection.execute(
            load_query("archive_texts"),
            [row.document_id for row in late_rows],
            [row.tenant for row in late_rows],
            [replace_nul(row.text) for row in late_rows],
        )


def _find_last_parts(
    verdicts: Sequence[Verdict], states: States
) -> dict[tuple[UUID, OrderKey], UUID]:
    """Return (document, order) → the last event that completes a part, if the order could be
    activated.
    """
    return {
        (row.document_id, row.order): verdict.event.event.id
        for verdict in verdicts
        if verdict.claim is ClaimStatus.PENDING
        for row in verdict.event.rows
        if isinstance(row, PartCompletedRow)
        # Entities complete later and never make a revision visible.
        and row.kind != "entities"
        # The empty tuple is less than every order.
        and row.order > (states[row.document_id].visible_order or ())
    }


def _to_visibility_change(row: asyncpg.Record, states: States) -> VisibilityChange:
    order, previous = tuple(row["ord"]), row["previous"]
    state = states[row["document_id"]]
    # Later groups of this transaction decide on the new pointer.
    state.visible_order, state.chunks = order, row["chunks"]
    return VisibilityChange(
        row["document_id"], order, row["chunks"], None if previous is None else tuple(previous)
    )


def _to_columns(orders: OrdersByDocument) -> tuple[list[UUID], list[str]]:
    return list(orders), [format_array(order) or "" for order in orders.values()]


async def write_revisions(
    connection: Connection, verdicts: Sequence[Verdict], states: States
) -> None:
    """Write the rows of one batch, which has at most one event per document."""
    written_rows = [
        (verdict, row) for verdict in verdicts if verdict.needs_write for row in verdict.event.rows
    ]
    accepted_rows = [
        (verdict, row) for verdict, row in written_rows if isinstance(row, DocumentRow)
    ]
    withdrawal_rows = [row for _, row in written_rows if isinstance(row, WithdrawalRow)]
    if accepted_rows:
        await connection.executemany(
            load_query("accept_document"),
            [
                _to_document_values(verdict, row, states[row.document_id].revision)
                for verdict, row in accepted_rows
            ],
        )
    if withdrawal_rows:
        await connection.executemany(
            load_query("withdraw_document"),
            [read_values(row, *WITHDRAWAL_FIELDS) for row in withdrawal_rows],
        )
    # Last: they overwrite fields that the statements above have just stored.
    await amendments.write_amendments(connection, verdicts, states)


def collect_withdrawals(verdicts: Sequence[Verdict]) -> dict[UUID, OrderKey]:
    rows = (row for verdict in verdicts if verdict.needs_write for row in verdict.event.rows)
    return {row.document_id: row.order for row in rows if isinstance(row, WithdrawalRow)}


async def fetch_revived_revisions(
    connection: Connection, generation: str, stage: str, events: Sequence[UUID]
) -> dict[UUID, DocumentRow]:
    """Return event → revived revision, while the event's reaction is pending."""
    return {
        row["by"]: _parse_document_row(row)
        for row in await connection.fetch(
            load_query("revived_revisions"), generation, stage, events
        )
    }


def _parse_document_row(row: asyncpg.Record) -> DocumentRow:
    fields = row["fields"]
    names = (
        *("document_id", "tenant", "source", "content_sha256", "event_id", "accepted_id"),
        *("received_at", "numbered"),
    )
    return DocumentRow(
        **{name: row[name] for name in names},
        **{name: fields[name] for name in STORED_FIELDS},
        order=tuple(row["ord"]),
        tags=tuple(fields["tags"]),
        document_date=date.fromisoformat(fields["document_date"])
        if fields["document_date"]
        else None,
        blob=BlobRef.model_validate(row["blob"]),
        readers=None if fields.get("readers") is None else tuple(fields["readers"]),
    )


def _to_document_values(verdict: Verdict, row: DocumentRow, revision: int) -> tuple[Any, ...]:
    return (
        *read_values(row, *DOCUMENT_FIELDS),
        revision,
        normalize_readers(row.readers),
        build_fields(row),
        verdict.event.event.data.force,
        *read_values(verdict.event.event.position, "topic", "partition", "offset"),
    )
