"""Activate and withdraw revisions: move the visible pointer and everything that depends on it.

These are the lexical statistics, the history, and the removal of older rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import asyncpg

from schemas.amendments import OrderKey
from schemas.ports.ledger import ClaimStatus, VisibilityChange
from schemas.rows import ChildRow, ParentRow, PartCompletedRow
from sql.encoding import format_array, replace_nul
from sql.inbox.document_state import collect_tenants
from sql.inbox.revision_policy import States, Verdict
from sql.pool import Connection
from sql.query_loader import load_query

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
        await connection.execute(
            load_query("archive_older_rows"), generation, *_to_columns(replaced_orders)
        )
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
        await connection.execute(load_query("archive_older_rows"), generation, *_to_columns(orders))


async def archive_late_texts(connection: Connection, verdicts: Sequence[Verdict]) -> None:
    """Copy the texts of superseded revisions into the history, as if they had arrived in time."""
    late_rows = [
        row
        for verdict in verdicts
        if verdict.claim is ClaimStatus.SUPERSEDED
        for row in verdict.event.rows
        if isinstance(row, ChildRow | ParentRow)
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
