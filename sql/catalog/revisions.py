"""Revisions of documents: the jobs of the requests that make them, who may change a document, and
what traces revisions, parts and chunks to their events in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np

from schemas.amendments import OrderKey
from schemas.batching import CallBatcher
from schemas.errors import unknown_document_error
from schemas.ids import make_derived_id, make_received_id
from schemas.ingest import DocumentAccess, IngestionJob
from schemas.ports.lineage import PartPosition, RevisionLineage, StoredChunk
from schemas.ports.stage_ports import Admission, LatestRevision, NewlyVisibleRevision
from schemas.principals import Principal
from schemas.topics import Position
from schemas.values import BlobRef
from sql.database import PgStore, Pool, encode_json_text, execute, format_array, read_values


class PgLineage(PgStore):
    """Implements `schemas.ports.lineage.LineageStore`. Any method may raise DatabaseUnavailable."""

    async def fetch_revision(
        self,
        caller: Principal,
        document_id: UUID,
        order: Sequence[int] | None,
        generation: str | None,
    ) -> RevisionLineage | None:
        rows = await self._fetch(
            "lineage_revision",
            caller.tenant,
            document_id,
            list(order) if order else None,
            generation,
            caller.readers,
        )
        if not rows:
            return None
        [row] = rows
        ingress_rows = await self._fetch(
            "lineage_ingress", make_received_id(caller.tenant, row["source"], row["event_id"])
        )
        names = (
            *("document_id", "external_id", "title", "tenant", "revision", "generation", "source"),
            *("event_id", "accepted_id", "content_sha256", "text_sha256", "markdown"),
        )
        return RevisionLineage(
            **{name: row[name] for name in names},
            order=tuple(row["ord"]),
            accepted_position=_parse_position(row),
            received_position=_parse_position(ingress_rows[0]) if ingress_rows else None,
            blob=BlobRef.model_validate(row["blob"]),
        )

    async def fetch_part_positions(
        self, document_id: UUID, order: Sequence[int], generation: str | None
    ) -> list[PartPosition]:
        rows = await self._fetch("lineage_positions", document_id, list(order), generation)
        return [
            PartPosition(
                row["step"], row["part"], _parse_position(row), row["event_id"], row["generation"]
            )
            for row in rows
        ]

    async def fetch_text_position(
        self, caller: Principal, document_id: UUID, revision: int
    ) -> Position | None:
        rows = await self._fetch(
            "text_position", caller.tenant, document_id, revision, caller.readers
        )
        if not rows:
            raise unknown_document_error(f"{document_id}, revision {revision}")
        return _parse_position(rows[0]) if rows[0]["log_topic"] else None

    async def fetch_chunk(
        self, generation: str, document_id: UUID, order: Sequence[int], chunk_id: UUID
    ) -> StoredChunk | None:
        rows = await self._fetch("lineage_chunk", generation, document_id, list(order), chunk_id)
        if not rows:
            return None
        [row] = rows
        vector = (
            # The bytes of the event: little-endian float16, to compare them exactly.
            np.array(row["vector"].strip("[]").split(","), "<f2").tobytes()
            if row["vector"]
            else None
        )
        return StoredChunk(row["text"], row["prefix"], row["char_start"], row["char_end"], vector)


def _parse_position(row: asyncpg.Record) -> Position:
    return Position(row["log_topic"], row["log_partition"], row["log_offset"])


class PgRevisions(PgStore):
    """Implements `schemas.ports.stage_ports.LatestRevisions` and `GenerationSwitches`.

    A document that the API has admitted is known even before a table has its revision.
    """

    async def fetch_latest(self, tenant: str, document_id: UUID) -> LatestRevision | None:
        row = await self._fetch_row("latest_revision", tenant, document_id)
        return (
            LatestRevision(
                row["numbered"], row["external_id"], tuple(row["latest"]) if row["latest"] else None
            )
            if row
            else None
        )

    async def fetch_newly_visible(
        self, generation: str, previous: str
    ) -> list[NewlyVisibleRevision]:
        return [
            NewlyVisibleRevision(**dict(row))
            for row in await self._fetch("newly_visible_revisions", generation, previous)
        ]

    async def find_unchanged(
        self, revisions: Sequence[tuple[UUID, OrderKey]]
    ) -> set[tuple[UUID, OrderKey]]:
        """Return the subset of revisions whose content the live generation already shows."""
        documents = [document for document, _ in revisions]
        orders = [format_array(order) or "" for _, order in revisions]
        rows = await self._fetch("unchanged_revisions", documents, orders)
        return {(row["document_id"], tuple(row["ord"])) for row in rows}


class PgDocumentOwners(PgStore):
    """Implements `schemas.ports.stage_ports.DocumentOwners`."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        # Stage `receive` admits documents concurrently.
        self._fetches = CallBatcher(self._fetch_together)
        self._admissions = CallBatcher(self._admit_together)

    async def fetch_owner(self, tenant: str, document_id: UUID) -> str | None:
        return await self._fetches.run((tenant, document_id))

    async def admit(self, admission: Admission) -> str | None:
        return await self._admissions.run(admission)

    async def _fetch_together(self, documents: Sequence[tuple[str, UUID]]) -> list[str | None]:
        columns = [tenant for tenant, _ in documents], [document for _, document in documents]
        rows = await self._fetch("document_owners", *columns)
        owners = {(row["tenant"], row["document_id"]): row["source"] for row in rows}
        return [owners.get(document) for document in documents]

    async def _admit_together(self, admissions: Sequence[Admission]) -> list[str | None]:
        owners: dict[int, str | None] = {}
        # One statement changes a row only once: a repeated document waits for the next one.
        remaining = list(enumerate(admissions))
        while remaining:
            by_document: dict[tuple[str, UUID], tuple[int, Admission]] = {}
            for index, admission in remaining:
                by_document.setdefault(
                    (admission.tenant, admission.document_id), (index, admission)
                )
            rows = await self._fetch(
                "admit_events",
                *map(
                    list, zip(*(_to_values(item) for _, item in by_document.values()), strict=True)
                ),
            )
            for row in rows:
                index, _ = by_document[row["tenant"], row["document_id"]]
                owners[index] = row["source"]
            remaining = [pair for pair in remaining if pair[0] not in owners]
        return [owners[index] for index in range(len(admissions))]


def _to_values(admission: Admission) -> tuple[Any, ...]:
    return (
        admission.tenant,
        admission.document_id,
        admission.event_id,
        admission.source,
        encode_json_text(list(admission.allowed)),
        format_array(admission.order),
        admission.is_numbered,
    )


async def restore_owners(pool: Pool, owners: Mapping[UUID, tuple[str, str]]) -> None:
    """Restore owners after a rebuild: document → tenant and source of its newest revision."""
    columns = (
        list(owners),
        [tenant for tenant, _ in owners.values()],
        [source for _, source in owners.values()],
    )
    await execute(pool, "restore_owners", *columns)


class PgJobs(PgStore):
    """Jobs over Postgres. Every method may raise DatabaseUnavailable."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        # Many uploads arrive at the same time.
        self._openings = CallBatcher(self._open_together)
        self._lock_slots = asyncio.Semaphore(2)

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
        row = await self._fetch_row("claim_job", *_to_row(job), request_sha256, readers)
        assert row is not None, "the query always returns one row"
        return str(row["request_sha256"]) if row["request_sha256"] is not None else None

    async def has_sent(self, caller: Principal, document_id: UUID) -> bool:
        """Return whether the caller has a job of this document."""
        return bool(await self._fetch_value("has_sent", caller.tenant, document_id, caller.id))

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
        row = await self._fetch_row(
            "document_access", caller.tenant, document_id, caller.readers, caller.id
        )
        assert row is not None, "the query always returns one row"
        return row

    async def _are_pending(self, job_ids: Sequence[UUID]) -> bool:
        """Return whether the event of any of these jobs is still to be projected."""
        # Events without an effect, such as a superseded amendment, leave only their claim.
        accepted_ids = [make_derived_id("receive", "", job_id, 0) for job_id in job_ids]
        return bool(job_ids) and await self._fetch_value("count_projected", accepted_ids) < len(
            job_ids
        )

    async def _open_together(self, jobs: Sequence[IngestionJob]) -> list[None]:
        rows = [_to_row(job) for job in jobs]
        await self._execute("open_jobs", *map(list, zip(*rows, strict=True)))
        return [None] * len(jobs)


def _to_row(job: IngestionJob) -> list[Any]:
    names = ("job_id", "tenant", "document_id", "event_id", "source", "external_id")
    return read_values(job, *names, "requested_by")
