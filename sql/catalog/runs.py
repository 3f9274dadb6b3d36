"""Read runs: their questions, the passages judged in feedback, and the texts that answers used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from schemas.judgements import MAX_QUOTE_CHARS, GradedPassage, QuotedPassage
from schemas.ports.lineage import RecordedText, RevisionArrival
from schemas.principals import Principal
from schemas.run_records import CurrentDocument, OrphanedRun
from schemas.topics import Position
from sql.database import Connection, PgStore, Pool, hold_session_lock, load_query, read_columns


class PgFeedback(PgStore):
    """Feedback over Postgres. Every method may raise DatabaseUnavailable."""

    async def fetch_passages(
        self, caller: Principal, chunk_ids: Sequence[UUID]
    ) -> dict[UUID, QuotedPassage]:
        """Return the passages of chunks visible in any generation, quotes truncated to
        MAX_QUOTE_CHARS.
        """
        rows = await self._fetch("passages", caller.tenant, list(chunk_ids), caller.readers)
        return {row["id"]: _to_passage(row) for row in rows}

    async def fetch_question(self, caller: Principal, run_id: UUID) -> str | None:
        """Return the query of a run.

        None if the run is unknown, or if it is another caller's and this caller has limited access.
        """
        only_requested_by = None if caller.readers is None else caller.id
        query = await self._fetch_value("run_question", caller.tenant, run_id, only_requested_by)
        return None if query is None else str(query)

    async def fetch_judgements(
        self, tenant: str, since: datetime | None, until: datetime | None
    ) -> list[tuple[str, GradedPassage]]:
        """Return (query, judgement) pairs; the last judgement of a passage wins."""
        rows = await self._fetch("question_judgements", tenant, since, until)
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
        rows = await self._fetch("recent_questions", tenant, since, until, limit)
        return [(row["run_id"], row["request"]) for row in rows]

    async def fetch_candidates(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        """Return the latest run of each answered question that has no judged passages and was not
        rejected.
        """
        rows = await self._fetch("golden_candidates", tenant, limit)
        return [dict(row) for row in rows]

    async def fetch_difficult(
        self, tenant: str, since: datetime | None, until: datetime | None, limit: int
    ) -> list[dict[str, Any]]:
        """Return the latest run of each question that was refused, answered with low confidence or
        judged not useful, newest first.
        """
        rows = await self._fetch("difficult_questions", tenant, since, until, limit)
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


class PgRecordedTexts(PgStore):
    """Implements `schemas.ports.lineage.RecordedTexts`."""

    async def fetch_texts(
        self, caller: Principal, texts: Sequence[RecordedText]
    ) -> dict[UUID, str]:
        columns = read_columns(texts, "id", "document_id")
        hashes = [bytes.fromhex(recorded_text.text_sha256) for recorded_text in texts]
        return await self._fetch_pairs(
            "recorded_texts", caller.tenant, *columns, hashes, caller.readers
        )

    async def fetch_current(
        self, caller: Principal, document_ids: Sequence[UUID]
    ) -> dict[UUID, CurrentDocument]:
        rows = await self._fetch(
            "current_document_states", caller.tenant, list(document_ids), caller.readers
        )
        return {
            row["document_id"]: CurrentDocument(
                visible_revision=row["visible_revision"], state=row["state"]
            )
            for row in rows
        }

    async def fetch_arrivals(
        self, caller: Principal, document_ids: Sequence[UUID]
    ) -> list[RevisionArrival]:
        """Return every revision of these documents that the caller may read."""
        rows = await self._fetch(
            "revision_arrivals", caller.tenant, list(document_ids), caller.readers
        )
        return [
            RevisionArrival(
                **{
                    **dict(row),
                    "position": Position(*row["position"]),
                    "withdrawal": Position(*row["withdrawal"]) if row["withdrawal"] else None,
                }
            )
            for row in rows
        ]


async def archive_run_texts(connection: Connection, generation: str) -> None:
    """Copy the texts that recorded answers used and that only this generation has into the history.

    Call it before the generation's rows are deleted.
    """
    await connection.execute(load_query("archive_run_texts"), generation)


# Find the runs of processes that ended, by a lock that each process holds while it lives.


class PgRunProcesses(PgStore):
    """Sessions of the processes that answer runs. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool, dsn: str) -> None:
        super().__init__(pool)
        self._dsn = dsn

    def open_session(self, process_id: UUID) -> AbstractAsyncContextManager[asyncio.Event]:
        """Mark the process as alive while the context is open; yield an event that is set when
        the connection is lost.
        """
        return hold_session_lock(self._dsn, f"anabranch runs {process_id}")

    async def find_ended(self) -> set[UUID]:
        """Return the processes that have open runs and no session."""
        rows = await self._fetch("ended_run_processes")
        return {row["process_id"] for row in rows}

    async def claim_runs(self, ended: Iterable[UUID], claimed_by: UUID) -> list[OrphanedRun]:
        """Make a process the owner of the open runs of ended ones, and return these runs.

        If that process ends before it reports them, they are found again.
        """
        rows = await self._fetch("claim_orphaned_runs", list(ended), claimed_by)
        return [OrphanedRun(**row) for row in rows]
