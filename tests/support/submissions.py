"""Submit a document to the service of the API, without HTTP."""

from __future__ import annotations

from schemas.ingest import IngestReceipt, IngestRequest
from schemas.principals import Principal
from services.ingest import IngestService


async def submit(
    service: IngestService, caller: Principal, request: IngestRequest
) -> IngestReceipt:
    async with service.open_submission(caller, None) as submission:
        return await service.submit_document(submission, request, None)
