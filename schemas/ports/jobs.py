"""Jobs of requests that change documents, and who may change a document."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from uuid import UUID

from schemas.ingest import DocumentAccess, IngestionJob
from schemas.principals import Principal


class IngestionJobs(Protocol):
    """Every method may raise DatabaseUnavailable."""

    async def open(self, job: IngestionJob) -> None:
        """Open a job whose event is written. Opening it again has no effect."""

    async def claim(
        self, job: IngestionJob, request_sha256: str, readers: Sequence[str] | None
    ) -> str | None:
        """Claim a job before its event is written, with the readers that the request states.

        Returns the hash of the request that has claimed it first; None for a job that was never
        claimed.
        """

    async def has_sent(self, caller: Principal, document_id: UUID) -> bool:
        """Return whether the caller has a job of this document."""

    async def fetch_access(self, caller: Principal, document_id: UUID) -> DocumentAccess:
        """Return whether the caller may change the document.

        Its latest readers decide, and those of claimed jobs that are not projected yet; earlier
        jobs of the caller only while no revision is admitted.
        """

    def lock_document(self, document_id: UUID) -> AbstractAsyncContextManager[None]:
        """Lock the document for this request, in all processes.

        No request can then restrict it between another one's check and its event.
        """
