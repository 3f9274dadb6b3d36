"""Write the rows of revisions and withdrawals, as the revision policy decided."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any
from uuid import UUID

import asyncpg

from schemas.amendments import OrderKey, normalize_readers
from schemas.rows import DocumentRow, WithdrawalRow
from schemas.values import BlobRef
from sql import encoding
from sql.inbox import amendments
from sql.inbox.revision_policy import States, Verdict, build_fields
from sql.pool import Connection
from sql.query_loader import load_query


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


def _to_document_values(verdict: Verdict, row: DocumentRow, revision: int) -> tuple[Any, ...]:
    position = verdict.event.event.position
    assert position is not None
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
        build_fields(row),
        verdict.event.event.data.force,
        position.topic,
        position.partition,
        position.offset,
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
