"""Ingest documents, and report the status of ingestion jobs.

A multipart form is parsed as a stream (RFC 7578): an upload is neither held in memory nor copied to
disk twice.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request
from pydantic import ValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from api.operations import OperationRoute, check_json, check_text, operation, read_json
from api.problems import format_remedy
from api.services import Caller, ServicesDep
from schemas.errors import (
    InvalidRequest,
    LimitExceeded,
    PermanentError,
    format_invalid_fields,
    unknown_resource_error,
)
from schemas.ingest import IngestReceipt, IngestRequest
from schemas.responses import JobStatus
from schemas.values import BlobRef

MAX_FIELD_BYTES = 1024 * 1024
MAX_PARTS = 64


@dataclass
class PartHeader:
    headers: dict[str, str] = field(default_factory=dict)

    @cached_property
    def disposition(self) -> dict[str, str]:
        _, options = parse_options_header(self.headers.get("content-disposition", ""))
        return {name.decode(): value.decode("utf-8", "replace") for name, value in options.items()}

    @property
    def name(self) -> str:
        return self.disposition.get("name", "")

    @property
    def filename(self) -> str | None:
        return self.disposition.get("filename")


PartEvent = PartHeader | bytes | None
"""A part's header, a piece of its data, or None at its end."""


class _PartEventCollector:
    """Collects the parser's callbacks as events until the next read."""

    def __init__(self, boundary: bytes) -> None:
        self.events: list[PartEvent] = []
        self.part = PartHeader()
        self.header_name, self.header_value = b"", b""
        self.finished = False
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": lambda: self.events.append(self.part),
                "on_part_data": lambda data, start, end: self.events.append(data[start:end]),
                "on_part_end": lambda: self.events.append(None),
                "on_end": self._on_end,
            },
        )

    def feed(self, chunk: bytes) -> list[PartEvent]:
        self.events = []
        self.parser.write(chunk)
        return self.events

    def _on_part_begin(self) -> None:
        self.part = PartHeader()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        # The parser may split a header between two chunks of the body.
        self.header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self.header_value += data[start:end]

    def _on_header_end(self) -> None:
        self.part.headers[self.header_name.decode("latin-1").lower()] = self.header_value.decode(
            "latin-1"
        )
        self.header_name, self.header_value = b"", b""

    def _on_end(self) -> None:
        self.finished = True


async def parse_parts(
    content_type: str, chunks: AsyncIterator[bytes]
) -> AsyncGenerator[PartEvent, None]:
    """Yield the events of the form. Raises InvalidRequest for an incomplete or malformed form."""
    _, options = parse_options_header(content_type)
    if not options.get(b"boundary"):
        raise InvalidRequest(
            "The multipart form has no boundary.",
            remedy="Let your HTTP client set the Content-Type header.",
        )
    try:
        collector = _PartEventCollector(options[b"boundary"])
        async for chunk in chunks:
            for event in collector.feed(chunk):
                yield event
    except FormParserError as error:
        raise InvalidRequest(
            f"Malformed multipart form: {error}.", remedy="Let your HTTP client encode the form."
        ) from error
    # Half a file must not pass for the whole one when a connection breaks off.
    if not collector.finished:
        raise InvalidRequest("The multipart form is incomplete.", remedy="Send it again.")


@dataclass(slots=True)
class MultipartForm:
    fields: dict[str, list[str]] = field(default_factory=dict)
    upload: BlobRef | None = None
    filename: str | None = None
    media_type: str | None = None


StoreUpload = Callable[[AsyncIterator[bytes], str | None], Awaitable[BlobRef]]


async def read_form(
    content_type: str, chunks: AsyncIterator[bytes], store: StoreUpload
) -> MultipartForm:
    """Parse the form; `store` receives its one file (field `file`) as it arrives."""
    form, n_parts = MultipartForm(), 0
    # Closes the generator at once when the form is refused halfway.
    async with aclosing(parse_parts(content_type, chunks)) as stream:
        async for event in stream:
            if not isinstance(event, PartHeader):
                continue
            n_parts += 1
            if n_parts > MAX_PARTS:
                raise LimitExceeded(
                    f"The form has more than {MAX_PARTS} parts.",
                    remedy="Send one document per request.",
                )
            if event.name != "file":
                text = await _read_text_field(event, stream)
                form.fields.setdefault(event.name, []).append(text)
                continue
            if form.upload is not None:
                raise InvalidRequest(
                    "The form has several files.", remedy="Send one document per request."
                )
            form.filename, form.media_type = event.filename, event.headers.get("content-type")
            # Streamed: `store` consumes the part's data from the parser.
            form.upload = await store(_iterate_part_data(stream), form.media_type)
    return form


async def _iterate_part_data(stream: AsyncIterator[PartEvent]) -> AsyncIterator[bytes]:
    async for event in stream:
        if event is None:
            return
        if isinstance(event, bytes):
            yield event


async def _read_text_field(part: PartHeader, stream: AsyncIterator[PartEvent]) -> str:
    value = b""
    async for chunk in _iterate_part_data(stream):
        value += chunk
        if len(value) > MAX_FIELD_BYTES:
            raise LimitExceeded(
                f"Form field {part.name} exceeds {MAX_FIELD_BYTES} bytes.",
                remedy="Send the document as the field `file`.",
            )
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(
            f"Form field {part.name} is not UTF-8.", remedy="Encode form fields as UTF-8."
        ) from None


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


@router.post(
    "/ingest", status_code=202, operation_id="ingest", openapi_extra={"requestBody": REQUEST_BODY}
)
@operation(
    "writer",
    problems="403 FORBIDDEN_KEY 404 NO_SUCH_BLOB 413 TOO_LARGE 415 UNSUPPORTED_MEDIA_TYPE 422 "
    "EMPTY_DOCUMENT FORBIDDEN_ADDRESS IDEMPOTENCY_KEY_REUSED 507 NO_SPACE",
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
    async with services.ingest.open_submission(caller, idempotency_key) as submission:
        body, upload = await _read_request(
            request, partial(services.ingest.stage_upload, submission)
        )
        return await services.ingest.submit_document(submission, body, upload)


@router.get("/ingest/status/{job}", operation_id="ingest_status", response_model_exclude_unset=True)
@operation("reader", problems="404 NOT_FOUND")
async def get_job_status(job: UUID, services: ServicesDep, caller: Caller) -> JobStatus:
    """Get the state, attempts, log position and error of each stage."""
    status = await services.documents.fetch_status(caller, job_id=job)
    if status is None:
        raise unknown_resource_error(
            "ingestion job", job, "Use the `ingestion_job_id` that POST /v1/ingest returned."
        )
    await services.monitoring.explain_waiting(caller, status)
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
    await services.monitoring.explain_waiting(caller, status)
    return JobStatus.model_validate(status)


async def _read_request(
    request: Request, stage_upload: StoreUpload
) -> tuple[IngestRequest, BlobRef | None]:
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
