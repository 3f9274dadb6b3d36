"""Load and write the amendments of documents.

Every function expects the documents to be locked (`sql.inbox.document_state.lock_documents`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.amendments import FieldStatement, stated_fields
from schemas.ports.ledger import ClaimStatus, ProjectedEvent
from schemas.rows import AmendmentRow, DocumentRow, WithdrawalRow
from sql.database import Connection, format_array, load_query, read_values
from sql.inbox.revision_policy import DocumentState, States, Verdict, extract_stated_fields

AMENDED_FIELDS = ("title", "collection", "tags", "metadata", "amended_fields", "readers")


async def load_statements(
    connection: Connection, events: Sequence[ProjectedEvent], states: States
) -> None:
    """Load field statements of the documents that have amendments or receive one, or a change that
    a limited caller requested.

    `statements` stays None for all other documents, which saves reading their revisions.
    """
    rows = await connection.fetch(load_query("amendments"), list(states))
    amended_ids = {row["document_id"] for row in rows} | {
        row.document_id
        for event in events
        for row in event.rows
        if isinstance(row, AmendmentRow)
        or (isinstance(row, DocumentRow | WithdrawalRow) and row.limited_to is not None)
    }
    # Most documents have no amendments.
    if not amended_ids:
        return
    for document in amended_ids:
        states[document].statements = []
    for row in rows:
        states[row["document_id"]].add_statement(
            FieldStatement(
                tuple(row["ord"]),
                row["accepted_id"],
                row["fields"],
                row["by_revision"],
                None if row["limited_to"] is None else tuple(row["limited_to"]),
            )
        )
    # Revisions state fields too, and may override an amendment of the same document.
    for row in await connection.fetch(load_query("revision_fields"), list(amended_ids)):
        states[row["document_id"]].add_statement(
            FieldStatement(
                tuple(row["ord"]), row["accepted_id"], stated_fields(row["fields"]), True
            )
        )


async def write_amendments(
    connection: Connection, verdicts: Sequence[Verdict], states: States
) -> None:
    """Store amendments and update the amended fields of their documents.

    Call it after the revisions and withdrawals of the same batch are written.
    """
    rows = [(verdict, row) for verdict in verdicts for row in verdict.event.rows]
    amendment_values = [
        _to_values(verdict, row, row.fields, by_revision=False)
        for verdict, row in rows
        if isinstance(row, AmendmentRow) and verdict.needs_write
    ]
    amendment_values += [
        _to_values(verdict, row, extract_stated_fields(row), by_revision=True)
        for verdict, row in rows
        if isinstance(row, DocumentRow) and _is_late_revision(verdict, row, states[row.document_id])
    ]
    if amendment_values:
        await connection.executemany(load_query("add_amendment"), amendment_values)
    if withdrawn_orders := {
        row.document_id: row.order
        for verdict, row in rows
        if isinstance(row, WithdrawalRow) and verdict.needs_write
    }:
        await connection.execute(
            load_query("delete_withdrawn_amendments"),
            list(withdrawn_orders),
            [format_array(order) for order in withdrawn_orders.values()],
        )
    document_ids = dict.fromkeys(verdict.event.event.data.document_id for verdict in verdicts)
    resolved = [
        (document, amended)
        for document in document_ids
        if (amended := states[document].resolve_fields()) is not None
        and states[document].statements
    ]
    if resolved:
        await connection.executemany(
            load_query("amend_document"),
            [(document, *read_values(amended, *AMENDED_FIELDS)) for document, amended in resolved],
        )


def _is_late_revision(verdict: Verdict, row: DocumentRow, state: DocumentState) -> bool:
    # Even a superseded revision ends the amendments that precede it in order, so its fields are
    # stored.
    is_withdrawn = state.withdrawn is not None and row.order < state.withdrawn
    return (
        verdict.claim is ClaimStatus.SUPERSEDED
        and not verdict.is_refused
        and not is_withdrawn
        and bool(extract_stated_fields(row))
    )


def _to_values(
    verdict: Verdict, row: AmendmentRow | DocumentRow, fields: dict[str, Any], *, by_revision: bool
) -> tuple[Any, ...]:
    return (
        *read_values(row, "document_id", "order", "accepted_id", "tenant"),
        fields,
        by_revision,
        row.received_at,
        *read_values(verdict.event.event.position, "topic", "partition", "offset"),
        row.limited_to,
    )
