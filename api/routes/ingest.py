"""Documents in, and where they are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.access import Caller, Use
from api.bounds import remedy_of
from api.guard import check_json, check_text, read_json
from api.multipart import Form, read_form
from api.services import IngestRequest, Receipt, Services, Upcoming
from schemas.errors import InvalidRequest, NotFound, PermanentError
from schemas.values import BlobRef

router = APIRouter(tags=["ingest"])

_LISTS = {"tags", "readers"}
_OBJECTS = {"metadata"}

REQUEST_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {"schema": IngestRequest.model_json_schema()},
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["file"],
                "properties": {"file": {"type": "string", "format": "binary"}}
                | {name: {"type": "string"} for name in IngestRequest.model_fields if name not in ("url", "text", "storage_key")},
            }
        },
    },
}


@router.post("/ingest", status_code=202, operation_id="ingest", openapi_extra={"requestBody": REQUEST_BODY})
async def ingest(
    request: Request,
    use: Use,
    caller: Caller,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255, description="the same key is the same event")] = None,
) -> Receipt:
    """Takes one document, as a file or as JSON. Answers once the event is durable in the log."""
    event, staged = use.intake.begin(caller, idempotency_key), Staged(caller.tenant)
    try:
        wanted, upload = await _read(request, use, event, staged)
        return await use.intake.accept(caller, wanted, upload, event)
    except (PermanentError, ClientDisconnect, HTTPException):
        for reference in staged.uploads:
            await use.intake.discard(event, reference)
        raise


@router.get("/ingest/status/{job}", operation_id="ingest_status")
async def status_of_job(job: UUID, use: Use, caller: Caller) -> dict[str, Any]:
    """Each stage's state, attempts, place in the log and error."""
    found = await use.documents.status(caller, job_id=job)
    if found is None:
        raise NotFound(f"no ingestion job {job}", remedy="Take `ingestion_job_id` from the answer to POST /v1/ingest.")
    return found


@router.get("/ingest/status", operation_id="ingest_status_by_event")
async def status_of_event(
    use: Use, caller: Caller, event_id: Annotated[str, Query(min_length=1, max_length=1024)], source: Annotated[str, Query(min_length=1, max_length=1024)]
) -> dict[str, Any]:
    """The same, by the producer's own ce_id and ce_source."""
    found = await use.documents.status(caller, event_id=event_id, source=source)
    if found is None:
        raise NotFound(f"no event {event_id!r} of {source!r}", remedy="It may not have been read yet: ask again; or look at topic `outcomes`.")
    return found


@dataclass(frozen=True, slots=True)
class Staged:
    """What a request has stored so far, however it ends."""

    tenant: str
    uploads: list[BlobRef] = field(default_factory=list)


async def _read(request: Request, use: Services, event: Upcoming, staged: Staged) -> tuple[IngestRequest, BlobRef | None]:
    content_type = request.headers.get("content-type", "")
    match content_type.partition(";")[0].strip().lower():
        case "multipart/form-data":
            form = await read_form(content_type, request.stream(), partial(_stored, use, event, staged))
            return _of_form(form), form.upload
        case "application/json":
            return _validated(await read_json(request)), None
    raise PermanentError(
        f"cannot read {content_type or 'a body without Content-Type'}",
        code="UNSUPPORTED_MEDIA_TYPE",
        remedy="Send multipart/form-data with `file`, or application/json.",
    )


async def _stored(use: Services, event: Upcoming, staged: Staged, chunks: AsyncIterator[bytes], media_type: str | None) -> BlobRef:
    staged.uploads.append(await use.intake.store(staged.tenant, event, chunks, media_type))
    return staged.uploads[-1]


def _of_form(form: Form) -> IngestRequest:
    if form.upload is None:
        raise InvalidRequest("the form has no file", remedy="Send the document as the field `file`.")
    values: dict[str, Any] = {name: _field(name, given) for name, given in form.fields.items()}
    check_text(form.filename or "", "the file's name")
    values.setdefault("filename", form.filename)
    values.setdefault("media_type", form.media_type)
    return _validated(values)


def _field(name: str, given: list[str]) -> Any:
    for text in given:
        check_text(text, f"form field {name}")
    if name in _OBJECTS or (name in _LISTS and len(given) == 1 and given[0].startswith("[")):
        try:
            found = json.loads(given[0])
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"form field {name} is not JSON: {error}", remedy="Write it as JSON.") from error
        check_json(found, f"form field {name}")
        return found
    return given if name in _LISTS else given[-1]


def _validated(values: Any) -> IngestRequest:
    try:
        return IngestRequest.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_input=False)[:5]
        problems = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'body'}: {item['msg']}" for item in found)
        raise InvalidRequest(problems, remedy=remedy_of(found)) from error
