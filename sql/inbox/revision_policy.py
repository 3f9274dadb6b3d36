"""Decide which revision wins at the transcribe stage, and write the rows of the decision.

A revision wins if its order is later than the latest revision and the withdrawal. It is unchanged
if the visible revision has the same content, fields and pipeline fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import Any
from uuid import UUID

import asyncpg

from schemas.amendments import OrderKey, normalize_readers
from schemas.ports.ledger import ClaimStatus, ProjectedEvent, VisibilityChange
from schemas.rows import AmendmentRow, DocumentRow, WithdrawalRow
from schemas.values import BlobRef
from sql import encoding
from sql.inbox import amendments
from sql.inbox.document_state import DocumentState, States, VisibleRevision
from sql.inbox.entries import Verdict
from sql.pool import Connection
from sql.query_loader import load_query


def decide_revision(
    event: ProjectedEvent, state: DocumentState, pipeline_fingerprint: str | None
) -> Verdict:
    """Decide about an event and update the state as its rows will."""
    [row] = event.rows
    assert isinstance(row, DocumentRow | AmendmentRow | WithdrawalRow), (
        "transcribe projects documents, amendments and withdrawals"
    )
    if isinstance(row, AmendmentRow):
        return amendments.decide_amendment(event, row, state)
    is_newest = _is_later(row.order, state.latest) and _is_later(row.order, state.withdrawn)
    # The latest withdrawal applies even if a revision has overtaken it (ADR 6).
    if isinstance(row, WithdrawalRow) and _is_later(row.order, state.withdrawn):
        # Before the withdrawal changes the state that this reads.
        revived_order = _resolve_surviving_order(state, row.order)
        change = _apply_withdrawal(row, state)
        return (
            Verdict(event, ClaimStatus.PENDING, change)
            if is_newest
            else Verdict(event, ClaimStatus.SUPERSEDED, revived_order=revived_order)
        )
    if isinstance(row, DocumentRow):
        # Also of a superseded revision, which ends amendments that precede it.
        amendments.record_revision_statement(row, state)
    if not is_newest:
        # Its claim was pruned: the reaction may still be owed, but the rows exist.
        is_redelivery = row.order == state.latest and row.accepted_id == state.accepted_id
        return Verdict(
            event,
            ClaimStatus.PENDING if is_redelivery else ClaimStatus.SUPERSEDED,
            needs_write=False,
        )
    assert isinstance(row, DocumentRow)
    unchanged = _is_unchanged(event, row, state, pipeline_fingerprint)
    reported_change = (
        VisibilityChange(row.document_id, state.visible_order, state.chunks, None)
        if unchanged and state.visible_order
        else None
    )
    _apply_revision(event, row, state)
    return Verdict(event, ClaimStatus.PENDING, reported_change, unchanged)


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
                _to_document_values(row, states[row.document_id].revision)
                for _, row in accepted_rows
            ],
        )
        await connection.executemany(
            load_query("add_revision"),
            [
                _to_revision_values(verdict, row, states[row.document_id].revision)
                for verdict, row in accepted_rows
            ],
        )
    if withdrawal_rows:
        await connection.executemany(
            load_query("withdraw_document"), [_to_withdrawal_values(row) for row in withdrawal_rows]
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


def _apply_revision(event: ProjectedEvent, row: DocumentRow, state: DocumentState) -> None:
    state.latest, state.accepted_id = row.order, row.accepted_id
    state.revision += 1
    # The chain of equal revisions ends at the first one that differs.
    if state.visible_revision is None or state.visible_revision.is_superseded:
        return
    if _has_same_content(event, row, state.visible_revision):
        state.visible_revision.unchanged_until = row.order
    else:
        state.visible_revision.is_superseded = True


def _resolve_surviving_order(state: DocumentState, withdrawal: OrderKey) -> OrderKey | None:
    """Return the order of the revision that survives a late withdrawal, or None.

    It is the last revision after the withdrawal that changed nothing: it has no rows of its own and
    was served by the visible revision, which is older than the withdrawal.
    """
    if (
        state.visible_revision is None
        or not _is_later(withdrawal, state.visible_order)
        or not _is_later(state.visible_revision.unchanged_until, withdrawal)
    ):
        return None
    return state.visible_revision.unchanged_until


def _apply_withdrawal(row: WithdrawalRow, state: DocumentState) -> VisibilityChange:
    # Applies to a late withdrawal as well: an older revision must not stay visible if the later one
    # fails.
    change = VisibilityChange(row.document_id, row.order, 0, state.visible_order)
    state.withdrawn = row.order
    if _is_later(row.order, state.latest):
        state.latest, state.accepted_id = row.order, row.accepted_id
    if _is_later(row.order, state.visible_order):
        state.visible_order = state.visible_revision = None
    return change


def _is_unchanged(
    event: ProjectedEvent, row: DocumentRow, state: DocumentState, pipeline_fingerprint: str | None
) -> bool:
    visible = state.visible_revision
    # A superseded visible revision does not count: the revision in between becomes visible after
    # it.
    return (
        visible is not None
        and not visible.is_superseded
        and visible.pipeline_fingerprint == pipeline_fingerprint
        and _has_same_content(event, row, visible)
    )


def _has_same_content(event: ProjectedEvent, row: DocumentRow, visible: VisibleRevision) -> bool:
    return (
        # A forced revision is processed although nothing changed.
        not event.event.data.force
        and visible.content_sha256 == row.content_sha256
        and visible.fields == _build_fields(row)
    )


def _build_fields(row: DocumentRow) -> dict[str, Any]:
    names = (
        "title",
        "filename",
        "media_type",
        "language",
        "collection",
        "source_uri",
        "external_id",
        "metadata",
    )
    fields = {name: getattr(row, name) for name in names}
    fields |= {
        "tags": list(row.tags),
        "document_date": row.document_date.isoformat() if row.document_date else None,
    }
    # Omitted if null, so that revisions stored before documents had readers compare as equal.
    fields |= {"readers": list(row.readers)} if row.readers is not None else {}
    # Through JSON, as stored: NUL is replaced, so a comparison with the table's value holds.
    return dict(json.loads(encoding.encode_json_text(fields)))


def _parse_document_row(row: asyncpg.Record) -> DocumentRow:
    fields = row["fields"]
    names = (
        "external_id",
        "source_uri",
        "filename",
        "media_type",
        "title",
        "language",
        "collection",
        "metadata",
    )
    return DocumentRow(
        document_id=row["document_id"],
        order=tuple(row["ord"]),
        tenant=row["tenant"],
        source=row["source"],
        tags=tuple(fields["tags"]),
        document_date=date.fromisoformat(fields["document_date"])
        if fields["document_date"]
        else None,
        content_sha256=row["content_sha256"],
        blob=BlobRef.model_validate(row["blob"]),
        event_id=row["event_id"],
        accepted_id=row["accepted_id"],
        received_at=row["received_at"],
        numbered=row["numbered"],
        readers=None if fields.get("readers") is None else tuple(fields["readers"]),
        **{name: fields[name] for name in names},
    )


def _to_document_values(row: DocumentRow, revision: int) -> tuple[Any, ...]:
    texts = (
        row.external_id,
        row.source,
        row.source_uri,
        row.filename,
        row.media_type,
        row.title,
        row.language,
        row.collection,
    )
    return (
        row.document_id,
        row.tenant,
        row.order,
        *map(encoding.replace_nul, texts),
        [encoding.replace_nul(tag) for tag in row.tags],
        row.metadata,
        row.document_date,
        row.content_sha256,
        row.blob.model_dump(mode="json"),
        encoding.replace_nul(row.event_id),
        row.accepted_id,
        row.received_at,
        row.numbered,
        revision,
        normalize_readers(row.readers),
    )


def _to_revision_values(verdict: Verdict, row: DocumentRow, revision: int) -> tuple[Any, ...]:
    position = verdict.event.event.position
    assert position is not None
    return (
        row.document_id,
        row.order,
        revision,
        row.tenant,
        *map(encoding.replace_nul, (row.title, row.filename, row.media_type)),
        row.content_sha256,
        row.blob.model_dump(mode="json"),
        _build_fields(row),
        verdict.event.event.data.force,
        encoding.replace_nul(row.event_id),
        encoding.replace_nul(row.source),
        row.accepted_id,
        row.received_at,
        position.topic,
        position.partition,
        position.offset,
        normalize_readers(row.readers),
    )


def _to_withdrawal_values(row: WithdrawalRow) -> tuple[Any, ...]:
    texts = (row.external_id, row.source, row.event_id)
    return (
        row.document_id,
        row.tenant,
        row.order,
        *map(encoding.replace_nul, texts),
        row.accepted_id,
        row.received_at,
        row.numbered,
    )


def _is_later(order: OrderKey, other: OrderKey | None) -> bool:
    return other is None or order > other
