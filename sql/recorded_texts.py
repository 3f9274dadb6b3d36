"""Find the texts that recorded answers were made from, in any generation or in the history."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from schemas.ports.rerun import RecordedText
from schemas.principals import Principal
from schemas.run_diffs import CurrentDocument
from sql.errors import translate_database_errors
from sql.pool import Connection, Pool
from sql.query_loader import load_query


class PgRecordedTexts:
    """Implements `schemas.ports.rerun.RecordedTexts` and `CurrentDocuments`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_texts(
        self, caller: Principal, texts: Sequence[RecordedText]
    ) -> dict[UUID, str]:
        columns = (
            [recorded_text.id for recorded_text in texts],
            [recorded_text.document_id for recorded_text in texts],
            [bytes.fromhex(recorded_text.text_sha256) for recorded_text in texts],
        )
        with translate_database_errors():
            rows = await self._pool.fetch(
                load_query("recorded_texts"), caller.tenant, *columns, caller.readers
            )
        return {row["id"]: row["text"] for row in rows}

    async def fetch_current(
        self, caller: Principal, document_ids: Sequence[UUID]
    ) -> dict[UUID, CurrentDocument]:
        with translate_database_errors():
            rows = await self._pool.fetch(
                load_query("current_document_states"),
                caller.tenant,
                list(document_ids),
                caller.readers,
            )
        return {
            row["document_id"]: CurrentDocument(
                visible_revision=row["visible_revision"], state=row["state"]
            )
            for row in rows
        }


async def archive_run_texts(connection: Connection, generation: str) -> None:
    """Copy the texts that recorded answers used and that only this generation has into the history.

    Call it before the generation's rows are deleted.
    """
    await connection.execute(load_query("archive_run_texts"), generation)
