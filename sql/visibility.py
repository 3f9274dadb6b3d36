"""The pointer that makes a revision visible, and all that moves with it: lexical statistics, history, and the end of what is older."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from schemas.ports.ledger import Claim, Flip
from schemas.rows import ChildRow, OrderKey, SettledRow
from sql.claims import Verdict
from sql.document_state import States, documents_of
from sql.pool import Connection
from sql.statements import statement
from sql.storable import array_text, text

Orders = Mapping[UUID, OrderKey]


async def flip_complete(connection: Connection, generation: str, verdicts: Sequence[Verdict], states: States) -> dict[UUID, Flip]:
    """Make the revisions visible whose last part is among these events. Event → flip; each is told with the last of its events."""
    last = _last_parts(verdicts, states)
    if not last:
        return {}
    rows = await connection.fetch(statement("complete_orders"), generation, *_keys(dict(last.keys())))
    if not rows:
        return {}
    orders = {row["document_id"]: tuple(row["ord"]) for row in rows}
    tenants = documents_of([verdict.event for verdict in verdicts])
    flips = await _make_visible(connection, generation, orders, tenants, states)
    if renewed := {row["document_id"]: orders[row["document_id"]] for row in rows if row["follows"]}:
        await connection.execute(statement("remove_older"), generation, *_keys(renewed))
    return {last[flip.document_id, flip.order]: flip for flip in flips}


async def withdraw(connection: Connection, generations: Sequence[str], orders: Orders) -> None:
    """Take these documents, up to these orders, out of every generation."""
    for generation in generations:
        rows = await connection.fetch(statement("visible_orders"), generation, list(orders))
        shown = {row["document_id"]: tuple(row["ord"]) for row in rows}
        await _count_words(connection, generation, {}, {document: order for document, order in shown.items() if order < orders[document]})
        await connection.execute(statement("hide"), generation, *_keys(orders))
        await connection.execute(statement("remove_older"), generation, *_keys(orders))


async def keep_late_texts(connection: Connection, verdicts: Sequence[Verdict]) -> None:
    """A revision that came too late leaves its texts in the history, as it would have had it come in time."""
    late = [row for verdict in verdicts if verdict.claim is Claim.SUPERSEDED for row in verdict.event.rows if isinstance(row, ChildRow)]
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


async def _make_visible(connection: Connection, generation: str, orders: Orders, tenants: Mapping[UUID, str], states: States) -> list[Flip]:
    before = {document: order for document in orders if (order := states[document].visible) is not None}
    moved = await connection.fetch(statement("make_visible"), generation, *_keys(orders), [tenants[document] for document in orders])
    await _count_words(connection, generation, orders, before)
    return [_moved(row["document_id"], orders[row["document_id"]], row["chunks"], states) for row in moved]


def _moved(document: UUID, order: OrderKey, chunks: int, states: States) -> Flip:
    state = states[document]
    flip = Flip(document, order, chunks, state.visible)
    state.visible, state.chunks = order, chunks
    return flip


async def _count_words(connection: Connection, generation: str, come: Orders, go: Orders) -> None:
    documents, orders = _keys(come)
    gone_documents, gone_orders = _keys(go)
    if documents or gone_documents:
        signs = [1] * len(documents) + [-1] * len(gone_documents)
        await connection.execute(statement("count_words"), generation, documents + gone_documents, orders + gone_orders, signs)


def _keys(orders: Orders) -> tuple[list[UUID], list[str]]:
    return list(orders), [array_text(order) or "" for order in orders.values()]
