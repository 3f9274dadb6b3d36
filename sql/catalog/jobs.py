"""Jobs of requests that change documents, and who may change a document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg

from schemas.batching import CallBatcher
from schemas.ids import make_derived_id
from schemas.ingest import DocumentAccess, IngestionJob
from schemas.principals import Principal
from sql.advisory_locks import wait_for_lock
from sql.errors import translate_database_errors
from sql.pool import Pool, execute, fetch_row, fetch_value

MAX_LOCKS = 2
"""Each lock holds a connection of the pool while its event is appended over another one."""


class PgJobs:
    """Jobs over Postgres. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # Many uploads arrive at the same time.
        self._openings = CallBatcher(self._open_together)
        self._lock_slots = asyncio.Semaphore(MAX_LOCKS)

    async def open(self, job: IngestionJob) -> None:
        """Open a job whose event is written. Opening it again has no effect."""
        await self._openings.run(job)

    async def claim(
        self, job: IngestionJob, request_sha256: str, readers: Sequence[str] | None
    ) -> str | None:
        """Claim a job before its event is written, with the readers that the request states.

        Returns the hash of the request that has claimed it first; None for a job that was never
        claimed.
        """
        row = await fetch_row(self._pool, "claim_job", *_to_row(job), request_sha256, readers)
        assert row is not None, "the query always returns one row"
        return str(row["request_sha256"]) if row["request_sha256"] is not None else None

    async def has_sent(self, caller: Principal, document_id: UUID) -> bool:
        """Return whether the caller has a job of this document."""
        return bool(
            await fetch_value(self._pool, "has_sent", caller.tenant, document_id, caller.id)
        )

    async def fetch_access(self, caller: Principal, document_id: UUID) -> DocumentAccess:
        """Return whether the caller may change the document.

        Its latest readers decide, and those of claimed jobs that are not projected yet; earlier
        jobs of the caller only while no revision is admitted.
        """
        if caller.readers is None:
            return "granted"
        row = await self._fetch_access_row(caller, document_id)
        if row["is_readable"] and row["restricting_jobs"]:
            if await self._are_pending(row["restricting_jobs"]):
                return "hidden"
            # Projected since: the readers in the first row may be those from before.
            row = await self._fetch_access_row(caller, document_id)
        if not row["is_readable"]:
            return "hidden"
        if row["is_admitted"] or row["is_own"]:
            return "granted"
        return "hidden" if row["is_known"] else "unknown"

    async def _fetch_access_row(self, caller: Principal, document_id: UUID) -> asyncpg.Record:
        row = await fetch_row(
            self._pool, "document_access", caller.tenant, document_id, caller.readers, caller.id
        )
        assert row is not None, "the query always returns one row"
        return row

    @asynccontextmanager
    async def lock_document(self, document_id: UUID) -> AsyncIterator[None]:
        """Lock the document for this request, in all processes.

        No request can then restrict it between another one's check and its event.
        """
        async with self._lock_slots:
            with translate_database_errors():
                async with (
                    self._pool.acquire() as connection,
                    wait_for_lock(connection, f"requests that change {document_id}"),
                ):
                    yield

    async def _are_pending(self, job_ids: Sequence[UUID]) -> bool:
        """Return whether the event of any of these jobs is still to be projected."""
        # Events without an effect, such as a superseded amendment, leave only their claim.
        accepted_ids = [make_derived_id("receive", "", job_id, 0) for job_id in job_ids]
        return bool(job_ids) and await fetch_value(
            self._pool, "count_projected", accepted_ids
        ) < len(job_ids)

    async def _open_together(self, jobs: Sequence[IngestionJob]) -> list[None]:
        rows = [_to_row(job) for job in jobs]
        await execute(self._pool, "open_jobs", *map(list, zip(*rows, strict=True)))
        return [None] * len(jobs)


def _to_row(job: IngestionJob) -> tuple[object, ...]:
    return (
        job.job_id,
        job.tenant,
        job.document_id,
        job.event_id,
        job.source,
        job.external_id,
        job.requested_by,
    )
