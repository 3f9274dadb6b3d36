"""Read runs: their questions, the passages judged in feedback, and the texts that answers used."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from schemas.judgements import MAX_QUOTE_CHARS, GradedPassage, QuotedPassage
from schemas.ports.lineage import RecordedText
from schemas.principals import Principal
from schemas.run_records import CurrentDocument
from sql.pool import Connection, Pool, fetch_rows, fetch_value
from sql.query_loader import load_query


class PgFeedback:
    """Feedback over Postgres. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def fetch_passages(
        self, caller: Principal, chunk_ids: Sequence[UUID]
    ) -> dict[UUID, QuotedPassage]:
        """Return the passages of chunks visible in any generation, quotes truncated to
        MAX_QUOTE_CHARS.
        """
        rows = await fetch_rows(
            self._pool, "passages", caller.tenant, list(chunk_ids), caller.readers
        )
        return {row["id"]: _to_passage(row) for row in rows}

    async def fetch_question(self, caller: Principal, run_id: UUID) -> str | None:
        """Return the query of a run.

        None if the run is unknown, or if it is another caller's and this caller has limited access.
        """
        only_requested_by = None if caller.readers is None else caller.id
        query = await fetch_value(
            self._pool, "run_question", caller.tenant, run_id, only_requested_by
        )
        return None if query is None else str(query)

    async def fetch_judgements(
        self, tenant: str, since: datetime | None, until: datetime | None
    ) -> list[tuple[str, GradedPassage]]:
        """Return (query, judgement) pairs; the last judgement of a passage wins."""
        rows = await fetch_rows(self._pool, "question_judgements", tenant, since, until)
        return [
            (
                row["query"],
                GradedPassage(**{name: row[name] for name in GradedPassage.model_fields}),
            )
            for row in rows
        ]

    async def fetch_requests(
        self, tenant: str, since: datetime | None, until: datetime | None, limit: int
    ) -> list[tuple[UUID, dict[str, Any]]]:
        """Return (run, request) pairs, newest first, one per distinct request."""
        rows = await fetch_rows(self._pool, "recent_questions", tenant, since, until, limit)
        return [(row["run_id"], row["request"]) for row in rows]

    async def fetch_candidates(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        """Return the latest run of each answered question that has no judged passages and was not
        rejected.
        """
        rows = await fetch_rows(self._pool, "golden_candidates", tenant, limit)
        return [dict(row) for row in rows]

    async def fetch_difficult(
        self, tenant: str, since: datetime | None, until: datetime | None, limit: int
    ) -> list[dict[str, Any]]:
        """Return the latest run of each question that was refused, answered with low confidence or
        judged not useful, newest first.
        """
        rows = await fetch_rows(self._pool, "difficult_questions", tenant, since, until, limit)
        return [
            dict(row)
            | {"run_id": str(row["run_id"]), "answered_at": row["answered_at"].isoformat()}
            for row in rows
        ]


def _to_passage(row: asyncpg.Record) -> QuotedPassage:
    quote = row["text"][:MAX_QUOTE_CHARS]
    end = (
        row["char_end"]
        if len(row["text"]) <= MAX_QUOTE_CHARS
        # The span must cover the quote as stored, not the whole chunk.
        else row["char_start"] + MAX_QUOTE_CHARS
    )
    return QuotedPassage(
        document_id=row["document_id"],
        external_id=row["external_id"],
        revision=row["revision"],
        char_start=row["char_start"],
        char_end=end,
        quote=quote,
    )


class PgRecordedTexts:
    """Implements `schemas.ports.lineage.RecordedTexts`."""

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
        rows = await fetch_rows(
            self._pool, "recorded_texts", caller.tenant, *columns, caller.readers
        )
        return {row["id"]: row["text"] for row in rows}

    async def fetch_current(
        self, caller: Principal, document_ids: Sequence[UUID]
    ) -> dict[UUID, CurrentDocument]:
        rows = await fetch_rows(
            self._pool, "current_document_states", caller.tenant, list(document_ids), caller.readers
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
