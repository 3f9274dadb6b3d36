"""What was asked, and what people said of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from schemas.judgements import QUOTE, Judged, Passage
from schemas.principals import Principal
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement


class PgFeedback:
    """Every call may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def passages(self, caller: Principal, chunk_ids: Sequence[UUID]) -> dict[UUID, Passage]:
        """Where chunks stand that answer in some generation; of a long one its beginning. Others are left out."""
        rows = await self._fetch("passages", caller.tenant, list(chunk_ids), caller.readers)
        return {row["id"]: _passage(row) for row in rows}

    async def question(self, caller: Principal, run_id: UUID) -> str | None:
        """None while the run is not known, or is another's and the caller is limited to readers."""
        limited = None if caller.readers is None else caller.id
        with database_errors():
            found = await self._pool.fetchval(
                "select request ->> 'query' from runs where tenant = $1 and id = $2 and ($3::text is null or asked_by = $3)", caller.tenant, run_id, limited
            )
        return None if found is None else str(found)

    async def judged(self, tenant: str, since: datetime | None, until: datetime | None) -> list[tuple[str, Judged]]:
        """Question and judgement; one given again counts as it was given last."""
        rows = await self._fetch("judged_questions", tenant, since, until)
        return [(row["query"], Judged(**{name: row[name] for name in Judged.model_fields})) for row in rows]

    async def asked(self, tenant: str, since: datetime | None, until: datetime | None, limit: int) -> list[tuple[UUID, dict[str, Any]]]:
        """Run and request, the latest first; a request that came several times once."""
        rows = await self._fetch("asked_questions", tenant, since, until, limit)
        return [(row["run_id"], row["request"]) for row in rows]

    async def _fetch(self, name: str, *parameters: Any) -> list[asyncpg.Record]:
        with database_errors():
            return list(await self._pool.fetch(statement(name), *parameters))


def _passage(row: asyncpg.Record) -> Passage:
    quote = row["text"][:QUOTE]
    end = row["char_end"] if len(row["text"]) <= QUOTE else row["char_start"] + QUOTE
    return Passage(
        document_id=row["document_id"],
        external_id=row["external_id"],
        revision=row["revision"],
        char_start=row["char_start"],
        char_end=end,
        quote=quote,
    )
