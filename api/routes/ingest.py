"""Ingest documents, and report the status of ingestion jobs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.dependencies import Caller, ServicesDep
from api.multipart import MultipartForm, read_form
from api.operations import OperationRoute, operation
from api.problems import format_remedy
from api.responses import ResponseModel, StageStatus
from api.services import Services
from api.validation import check_json, check_text, read_json
from schemas.errors import InvalidRequest, PermanentError, unknown_resource_error
from schemas.ingest import IngestReceipt, IngestRequest, JobState, PlannedEvent
from schemas.validation_errors import format_invalid_fields
from schemas.values import BlobRef, Notice

router = APIRouter(route_class=OperationRoute, tags=["ingest"])

_LIST_FIELDS = {"tags", "readers"}
_JSON_FIELDS = {"metadata"}

REQUEST_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {"schema": {"$ref": "#/components/schemas/IngestRequest"}},
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {"file": {"type": "string", "format": "binary"}}
                | {
                    name: {"type": "string"}
                    for name in IngestRequest.model_fields
                    if name not in ("url", "text", "storage_key")
                },
            }
        },
    },
}


class JobStatus(ResponseModel):
    """Status of one event: an upload, an amendment or a withdrawal."""

    ingestion_job_id: UUID
    document_id: UUID | None = Field(description="Null for an event that could not be read.")
    external_id: str | None
    state: JobState
    stages: list[StageStatus]
    chunks_count: int = Field(description="Chunks that queries see; 0 until it is searchable.")
    tokens_estimate: int
    warnings: list[Notice]
    revision: int = Field(0, description="Absent until ingress has assigned it.")
    content_sha256: str | None = Field(None, description="Absent until ingress has read the bytes.")


@router.post(
    "/ingest", status_code=202, operation_id="ingest", openapi_extra={"requestBody": REQUEST_BODY}
)
@operation(
    "writer",
    problems=(
        "403 FORBIDDEN_KEY 404 NO_SUCH_BLOB 413 TOO_LARGE 415 UNSUPPORTED_MEDIA_TYPE 422 "
        "EMPTY_DOCUMENT FORBIDDEN_ADDRESS IDEMPOTENCY_KEY_REUSED 507 NO_SPACE"
    ),
)
async def ingest(
    request: Request,
    services: ServicesDep,
    caller: Caller,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1, max_length=255, description="Requests with the same key are one event."
        ),
    ] = None,
) -> IngestReceipt:
    """Ingest one document, as a file or as JSON. Responds once the event is durable in the log."""
    # The event's id comes first, because the upload is staged under it.
    event, staged = (
        services.ingest.plan_event(caller, idempotency_key),
        StagedUploads(caller.tenant),
    )
    try:
        body, upload = await _read_request(request, services, event, staged)
        return await services.ingest.submit_document(caller, body, upload, event)
    # Not after a transient error: the event may have been written, and then needs its upload.
    except (PermanentError, ClientDisconnect, HTTPException):
        for reference in staged.uploads:
            await services.ingest.discard_upload(event, reference)
        raise


@router.get("/ingest/status/{job}", operation_id="ingest_status", response_model_exclude_unset=True)
@operation("reader", problems="404 NOT_FOUND")
async def get_job_status(job: UUID, services: ServicesDep, caller: Caller) -> JobStatus:
    """Get the state, attempts, log position and error of each stage."""
    status = await services.documents.fetch_status(caller, job_id=job)
    if status is None:
        raise unknown_resource_error(
            "ingestion job", job, "Use the `ingestion_job_id` that POST /v1/ingest returned."
        )
    return JobStatus.model_validate(status)


@router.get(
    "/ingest/status", operation_id="ingest_status_by_event", response_model_exclude_unset=True
)
@operation("reader", problems="404 NOT_FOUND")
async def get_event_status(
    services: ServicesDep,
    caller: Caller,
    event_id: Annotated[str, Query(min_length=1, max_length=1024)],
    source: Annotated[str, Query(min_length=1, max_length=1024)],
) -> JobStatus:
    """Get the status by the producer's own ce_id and ce_source."""
    status = await services.documents.fetch_status(caller, event_id=event_id, source=source)
    if status is None:
        raise unknown_resource_error(
            "event",
            f"{event_id!r} of source {source!r}",
            "Ingress may not have read it yet: retry, or check topic `outcomes`.",
        )
    return JobStatus.model_validate(status)


@dataclass(frozen=True, slots=True)
class StagedUploads:
    """Uploads that a request has stored so far, to discard them when it fails."""

    tenant: str
    uploads: list[BlobRef] = field(default_factory=list)


async def _read_request(
    request: Request, services: Services, event: PlannedEvent, staged: StagedUploads
) -> tuple[IngestRequest, BlobRef | None]:
    async def stage_upload(chunks: AsyncIterator[bytes], media_type: str | None) -> BlobRef:
        staged.uploads.append(
            await services.ingest.stage_upload(staged.tenant, event, chunks, media_type)
        )
        return staged.uploads[-1]

    content_type = request.headers.get("content-type", "")
    match content_type.partition(";")[0].strip().lower():
        case "multipart/form-data":
            form = await read_form(content_type, request.stream(), stage_upload)
            return _parse_form(form), form.upload
        case "application/json":
            return _validate_request(await read_json(request)), None
    raise PermanentError(
        f"Unsupported media type: {content_type or 'no Content-Type'}.",
        code="UNSUPPORTED_MEDIA_TYPE",
        remedy="Send multipart/form-data with `file`, or application/json.",
    )


def _parse_form(form: MultipartForm) -> IngestRequest:
    if form.upload is None:
        raise InvalidRequest(
            "The form has no file.", remedy="Send the document as the field `file`."
        )
    values: dict[str, Any] = {
        name: _parse_form_field(name, texts) for name, texts in form.fields.items()
    }
    check_text(form.filename or "", "The file name")
    # A field of the form takes precedence over the header of the file's part.
    values.setdefault("filename", form.filename)
    values.setdefault("media_type", form.media_type)
    return _validate_request(values)


def _parse_form_field(name: str, texts: list[str]) -> Any:
    for text in texts:
        check_text(text, f"Form field {name}")
    if name in _JSON_FIELDS or (
        name in _LIST_FIELDS and len(texts) == 1 and texts[0].startswith("[")
    ):
        try:
            value = json.loads(texts[0])
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(
                f"Form field {name} is not valid JSON: {error}.", remedy="Send it as JSON."
            ) from error
        check_json(value, f"Form field {name}")
        return value
    # Tags may be repeated fields or one JSON list.
    return texts if name in _LIST_FIELDS else texts[-1]


def _validate_request(values: Any) -> IngestRequest:
    try:
        return IngestRequest.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_input=False)[:5]
        raise InvalidRequest(
            format_invalid_fields(errors, "body"), remedy=format_remedy(errors)
        ) from error
