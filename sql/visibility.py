"""The pointer that makes a revision visible, and all that moves with it: lexical statistics, history, and the end of what is older."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import asyncpg

from schemas.ports.ledger import Claim, Flip
from schemas.rows import ChildRow, OrderKey, ParentRow, SettledRow
from sql.claims import Verdict
from sql.document_state import States, documents_of
from sql.pool import Connection
from sql.statements import statement
from sql.storable import array_text, text

Orders = Mapping[UUID, OrderKey]


async def flip_complete(connection: Connection, generation: str, stage: str, verdicts: Sequence[Verdict], states: States) -> dict[UUID, Flip]:
    """Make the revisions visible whose last part is among these events. Event → flip; each is told with the last of its events."""
    last = _last_parts(verdicts, states)
    if not last:
        return {}
    tenants = documents_of([verdict.event for verdict in verdicts])
    orders = dict(last.keys())
    rows = await connection.fetch(statement("flip"), generation, *_keys(orders), [tenants[document] for document in orders], list(last.values()), stage)
    if renewed := {row["document_id"]: orders[row["document_id"]] for row in rows if row["follows"]}:
        await connection.execute(statement("remove_older"), generation, *_keys(renewed))
    return {row["event_id"]: _moved(row, states) for row in rows}


async def withdraw(connection: Connection, generations: Sequence[str], orders: Orders) -> None:
    """Take these documents, up to these orders, out of every generation."""
    for generation in generations:
        rows = await connection.fetch(statement("visible_orders"), generation, list(orders))
        gone = {row["document_id"]: order for row in rows if (order := tuple(row["ord"])) < orders[row["document_id"]]}
        if gone:
            await connection.execute(statement("uncount_words"), generation, *_keys(gone))
            await connection.execute(statement("hide"), generation, *_keys(orders))
        await connection.execute(statement("remove_older"), generation, *_keys(orders))


async def keep_late_texts(connection: Connection, verdicts: Sequence[Verdict]) -> None:
    """A revision that came too late leaves its texts in the history, as it would have had it come in time."""
    late = [row for verdict in verdicts if verdict.claim is Claim.SUPERSEDED for row in verdict.event.rows if isinstance(row, ChildRow | ParentRow)]
    if late:
        await connection.execute(statement("keep_texts"), [row.document_id for row in late], [row.tenant for row in late], [text(row.text) for row in late])


def _last_parts(verdicts: Sequence[Verdict], states: States) -> dict[tuple[UUID, OrderKey], UUID]:
    """(document, order) → the last of these events that settles a part of it, where that could move the pointer."""
    return {
        (row.document_id, row.order): verdict.event.fact.id
        for verdict in verdicts
        if verdict.claim is Claim.OWED
        for row in verdict.event.rows
        if isinstance(row, SettledRow) and row.kind != "entities" and row.order > (states[row.document_id].visible or ())
    }


def _moved(row: asyncpg.Record, states: States) -> Flip:
    order, previous = tuple(row["ord"]), row["previous"]
    state = states[row["document_id"]]
    state.visible, state.chunks = order, row["chunks"]
    return Flip(row["document_id"], order, row["chunks"], None if previous is None else tuple(previous))


def _keys(orders: Orders) -> tuple[list[UUID], list[str]]:
    return list(orders), [array_text(order) or "" for order in orders.values()]
