"""Texts that past answers were made from, wherever they are now."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from schemas.ports.runs import PastText
from schemas.principals import Principal
from schemas.run_diffs import DocumentNow
from sql.errors import database_errors
from sql.pool import Connection, Pool
from sql.statements import statement


class PgPastTexts:
    """See `schemas.ports.runs.PastTexts` and `DocumentsNow`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def find(self, caller: Principal, wanted: Sequence[PastText]) -> dict[UUID, str]:
        columns = [one.id for one in wanted], [one.document_id for one in wanted], [bytes.fromhex(one.text_sha256) for one in wanted]
        with database_errors():
            rows = await self._pool.fetch(statement("past_texts"), caller.tenant, *columns, caller.readers)
        return {row["id"]: row["text"] for row in rows}

    async def now(self, caller: Principal, documents: Sequence[UUID]) -> dict[UUID, DocumentNow]:
        with database_errors():
            rows = await self._pool.fetch(statement("documents_now"), caller.tenant, list(documents), caller.readers)
        return {row["document_id"]: DocumentNow(visible_revision=row["visible_revision"], state=row["state"]) for row in rows}


async def keep_run_texts(connection: Connection, generation: str) -> None:
    """Texts that only this generation holds and that answers of its time were made from go into the history. Call it before the generation's rows go."""
    await connection.execute(statement("keep_run_texts"), generation)
