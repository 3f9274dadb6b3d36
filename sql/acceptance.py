"""At transcribe: whether a revision is the latest, whether it changes anything, and the rows that say so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from typing import Any
from uuid import UUID

import asyncpg

from schemas.amendments import limited_to
from schemas.ports.ledger import Claim, Flip, Projected
from schemas.rows import AmendmentRow, DocumentRow, OrderKey, WithdrawalRow
from schemas.values import BlobRef
from sql import amending, storable
from sql.claims import Verdict
from sql.document_state import DocumentState, Shown, States
from sql.pool import Connection
from sql.statements import statement


def judge(event: Projected, state: DocumentState, how: str | None) -> Verdict:
    """Decide, and move the state on as the rows will."""
    [row] = event.rows
    assert isinstance(row, DocumentRow | AmendmentRow | WithdrawalRow), "transcribe projects a document, what amends it, or its withdrawal"
    if isinstance(row, AmendmentRow):
        return amending.judge(event, row, state)
    newest = _later(row.order, state.latest) and _later(row.order, state.withdrawn)
    if isinstance(row, WithdrawalRow) and _later(row.order, state.withdrawn):
        revived = _lives_on(state, row.order)
        gone = _withdraw(row, state)
        return Verdict(event, Claim.OWED, gone) if newest else Verdict(event, Claim.SUPERSEDED, revived=revived)
    if isinstance(row, DocumentRow):
        amending.note_revision(row, state)
    if not newest:
        again = row.order == state.latest and row.accepted_id == state.accepted_id
        return Verdict(event, Claim.OWED if again else Claim.SUPERSEDED, written=False)
    assert isinstance(row, DocumentRow)
    unchanged = _unchanged(event, row, state, how)
    flip = Flip(row.document_id, state.visible, state.chunks, None) if unchanged and state.visible else None
    _accept(event, row, state)
    return Verdict(event, Claim.OWED, flip, unchanged)


async def write(connection: Connection, verdicts: Sequence[Verdict], states: States) -> None:
    """The rows of one run: at most one event a document."""
    written = [(verdict, row) for verdict in verdicts if verdict.written for row in verdict.event.rows]
    accepted = [(verdict, row) for verdict, row in written if isinstance(row, DocumentRow)]
    removed = [row for _, row in written if isinstance(row, WithdrawalRow)]
    if accepted:
        await connection.executemany(statement("accept_document"), [_document(row, states[row.document_id].revision) for _, row in accepted])
        await connection.executemany(statement("add_revision"), [_revision(verdict, row, states[row.document_id].revision) for verdict, row in accepted])
    if removed:
        await connection.executemany(statement("withdraw_document"), [_withdrawal(row) for row in removed])
    await amending.write(connection, verdicts, states)


def withdrawals(verdicts: Sequence[Verdict]) -> dict[UUID, OrderKey]:
    rows = (row for verdict in verdicts if verdict.written for row in verdict.event.rows)
    return {row.document_id: row.order for row in rows if isinstance(row, WithdrawalRow)}


async def revived(connection: Connection, generation: str, stage: str, events: Sequence[UUID]) -> dict[UUID, DocumentRow]:
    """Event → the revision that it brought back, for as long as its reaction is owed."""
    return {row["by"]: _as_accepted(row) for row in await connection.fetch(statement("revived"), generation, stage, events)}


def _accept(event: Projected, row: DocumentRow, state: DocumentState) -> None:
    state.latest, state.accepted_id = row.order, row.accepted_id
    state.revision += 1
    if state.shown is None or state.shown.overtaken:
        return
    if _says_the_same(event, row, state.shown):
        state.shown.until = row.order
    else:
        state.shown.overtaken = True


def _lives_on(state: DocumentState, withdrawal: OrderKey) -> OrderKey | None:
    """The last revision behind this late withdrawal that changed nothing and so lives on in the visible one, which is older than the withdrawal."""
    if state.shown is None or not _later(withdrawal, state.visible) or not _later(state.shown.until, withdrawal):
        return None
    return state.shown.until


def _withdraw(row: WithdrawalRow, state: DocumentState) -> Flip:
    """Also one that a later revision has overtaken: what is older than the withdrawal must not go on serving should that revision fail."""
    flip = Flip(row.document_id, row.order, 0, state.visible)
    state.withdrawn = row.order
    if _later(row.order, state.latest):
        state.latest, state.accepted_id = row.order, row.accepted_id
    if _later(row.order, state.visible):
        state.visible = state.shown = None
    return flip


def _unchanged(event: Projected, row: DocumentRow, state: DocumentState, how: str | None) -> bool:
    """Against the visible revision; not while a revision between the two is on its way, which would be shown after it."""
    shown = state.shown
    return shown is not None and not shown.overtaken and shown.how == how and _says_the_same(event, row, shown)


def _says_the_same(event: Projected, row: DocumentRow, shown: Shown) -> bool:
    return not event.fact.data.force and shown.content_sha256 == row.content_sha256 and shown.fields == _fields(row)


def _fields(row: DocumentRow) -> dict[str, Any]:
    names = ("title", "filename", "media_type", "language", "collection", "source_uri", "external_id", "metadata")
    fields = {name: getattr(row, name) for name in names}
    fields |= {"tags": list(row.tags), "document_date": row.document_date.isoformat() if row.document_date else None}
    # Left out where none are named: revisions that were stored before documents had readers say the same.
    fields |= {"readers": list(row.readers)} if row.readers is not None else {}
    return dict(json.loads(storable.json_text(fields)))


def _as_accepted(row: asyncpg.Record) -> DocumentRow:
    fields = row["fields"]
    names = ("external_id", "source_uri", "filename", "media_type", "title", "language", "collection", "metadata")
    return DocumentRow(
        document_id=row["document_id"],
        order=tuple(row["ord"]),
        tenant=row["tenant"],
        source=row["source"],
        tags=tuple(fields["tags"]),
        document_date=date.fromisoformat(fields["document_date"]) if fields["document_date"] else None,
        content_sha256=row["content_sha256"],
        blob=BlobRef.model_validate(row["blob"]),
        event_id=row["event_id"],
        accepted_id=row["accepted_id"],
        received_at=row["received_at"],
        numbered=row["numbered"],
        readers=None if fields.get("readers") is None else tuple(fields["readers"]),
        **{name: fields[name] for name in names},
    )


def _document(row: DocumentRow, revision: int) -> tuple[Any, ...]:
    texts = (row.external_id, row.source, row.source_uri, row.filename, row.media_type, row.title, row.language, row.collection)
    return (
        *(row.document_id, row.tenant, row.order, *map(storable.text, texts), [storable.text(tag) for tag in row.tags], row.metadata, row.document_date),
        *(
            row.content_sha256,
            row.blob.model_dump(mode="json"),
            storable.text(row.event_id),
            row.accepted_id,
            row.received_at,
            row.numbered,
            revision,
            limited_to(row.readers),
        ),
    )


def _revision(verdict: Verdict, row: DocumentRow, revision: int) -> tuple[Any, ...]:
    position = verdict.event.fact.position
    assert position is not None
    return (
        *(row.document_id, row.order, revision, row.tenant, *map(storable.text, (row.title, row.filename, row.media_type)), row.content_sha256),
        *(row.blob.model_dump(mode="json"), _fields(row), verdict.event.fact.data.force, storable.text(row.event_id), storable.text(row.source)),
        *(row.accepted_id, row.received_at, position.topic, position.partition, position.offset, limited_to(row.readers)),
    )


def _withdrawal(row: WithdrawalRow) -> tuple[Any, ...]:
    texts = (row.external_id, row.source, row.event_id)
    return (row.document_id, row.tenant, row.order, *map(storable.text, texts), row.accepted_id, row.received_at, row.numbered)


def _later(order: OrderKey, than: OrderKey | None) -> bool:
    return than is None or order > than
