"""Problem documents (RFC 9457): errors with a code for programs and a remedy for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from engines.disk import is_disk_full
from schemas import sources, values
from schemas.errors import (
    AnabranchError,
    FatalError,
    Forbidden,
    ForbiddenAddress,
    InvalidRequest,
    LimitExceeded,
    NoSpace,
    NotFound,
    PermanentError,
    TransientError,
    Unauthenticated,
    UnreadableDocument,
    format_invalid_fields,
    join_sentences,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5
CLIENT_CLOSED_REQUEST = 499
# Sent with every response.
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
MISSING_CONTENT_TYPE_REMEDY = (
    "Send JSON with the header Content-Type: application/json, and compare it with /openapi.json."
)

STATUS_BY_CODE = {
    "FORBIDDEN_KEY": 403,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "DUPLICATE_ID": 409,
    "IDEMPOTENCY_KEY_REUSED": 422,
    "RANGE_NOT_SATISFIABLE": 416,
    "NO_SPACE": 507,
    "RUN_TIMED_OUT": 504,
} | dict.fromkeys(
    (
        "GENERATION_BEHIND",
        "NOT_CALIBRATED",
        "GENERATION_IS_LIVE",
        "GENERATION_NOT_LIVE",
        "NOT_RETAINED",
        "CURSOR_AHEAD",
    ),
    409,
)
# The first match counts, so subclasses stand before their base classes.
STATUS_BY_ERROR_TYPE: tuple[tuple[type[AnabranchError], int], ...] = (
    (Unauthenticated, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (LimitExceeded, 413),
    (InvalidRequest, 422),
    (UnreadableDocument, 422),
    (ForbiddenAddress, 422),
    (PermanentError, 422),
    (TransientError, 503),
    (FatalError, 500),
)

CODE_BY_STATUS = {
    400: "BAD_REQUEST",
    404: "NO_SUCH_PATH",
    405: "METHOD_NOT_ALLOWED",
    408: "REQUEST_TIMEOUT",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
}
REMEDY_BY_STATUS = {
    400: "Send well-formed JSON in UTF-8.",
    404: "See /docs for the available paths.",
    408: (
        "Send the body without pauses; ANABRANCH_API__MIN_UPLOAD_RATE sets the minimum upload rate."
    ),
    413: "Send a file as multipart form, or raise ANABRANCH_INGEST__MAX_BYTES.",
    405: "See /docs for the methods of this path.",
}
OPENAI_PATH = "/openai/"
OPENAI_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
DEFAULT_REMEDY = "Compare the request with /openapi.json."
# By Pydantic's error type, with placeholders of its context.
BOUND_DESCRIPTIONS = {
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "too_long": "at most {max_length} of them",
    "too_short": "at least {min_length} of them",
    "literal_error": "one of {expected}",
    "enum": "one of {expected}",
    "string_pattern_mismatch": "a text of the form {pattern}",
    "uuid_parsing": "a whole id of 32 hexadecimal digits, as lists return it",
}
PATTERN_DESCRIPTIONS = {
    sources.NAME_PATTERN: "a letter a to z, then at most 39 of a to z, 0 to 9, _ and -",
    sources.SLOT_PATTERN: "at most 63 of a to z, 0 to 9 and _",
    sources.TABLE_PATTERN: "TABLE or SCHEMA.TABLE",
    sources.URL_PATTERN: "an http or https address",
    values.READER_PATTERN: "user:NAME, group:NAME or everyone, without spaces",
}


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="Always `about:blank`: `code` names the error.")
    title: str = Field(description="Name of the HTTP status.")
    status: int
    detail: str = Field(description="What happened.")
    code: str = Field(description="Code for programs; the error reference lists all.")
    remedy: str = Field(description="What to do.")
    instance: str = Field(description="Path of the request.")
    request_id: str


def get_status(error: AnabranchError) -> int:
    if error.code in STATUS_BY_CODE:
        return STATUS_BY_CODE[error.code]
    return next((status for kind, status in STATUS_BY_ERROR_TYPE if isinstance(error, kind)), 500)


def build_problem(
    request: Request,
    status: int,
    code: str,
    detail: str,
    remedy: str = "",
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    problem = Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        remedy=remedy,
        instance=request.url.path,
        request_id=request.scope.get("request_id", ""),
    )
    # Starlette sends a 500 outside of all middleware, so the headers that they would add are added
    # here.
    own_headers = (
        {"X-Request-ID": problem.request_id, **SECURITY_HEADERS}
        if status == HTTPStatus.INTERNAL_SERVER_ERROR
        else {}
    )
    retry_headers = (
        {"Retry-After": str(RETRY_AFTER_S)} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    )
    is_openai = request.scope["path"].startswith(OPENAI_PATH)
    return JSONResponse(
        format_openai_error(problem) if is_openai else problem.model_dump(),
        status,
        media_type="application/json" if is_openai else MEDIA_TYPE,
        headers=own_headers | retry_headers | (headers or {}),
    )


def format_openai_error(problem: Problem) -> dict[str, Any]:
    """Format the problem as clients of OpenAI read errors."""
    kind = OPENAI_ERROR_TYPES.get(
        problem.status, "server_error" if problem.status >= 500 else "invalid_request_error"
    )
    message = join_sentences(problem.detail, problem.remedy)
    return {"error": {"message": message, "type": kind, "param": None, "code": problem.code}}


def build_error_problem(request: Request, error: Exception) -> JSONResponse:
    """Build the problem for any error; what is no AnabranchError and no full disk is logged."""
    if not isinstance(error, AnabranchError) and is_disk_full(error):
        error = NoSpace("No space is left on the disk.")
    if isinstance(error, AnabranchError):
        headers = (
            {"WWW-Authenticate": 'Bearer realm="anabranch"'}
            if isinstance(error, Unauthenticated)
            else None
        )
        return build_problem(
            request, get_status(error), error.code, error.detail, error.remedy, headers
        )
    structlog.get_logger("api").error(
        "request_failed",
        request_id=request.scope.get("request_id"),
        path=request.url.path,
        exc_info=error,
    )
    return build_problem(
        request,
        500,
        "BUG",
        "Internal error. The server's log has it under this request id.",
        "Report it with the request id.",
    )


async def _handle_error(request: Request, error: Exception) -> JSONResponse:
    return build_error_problem(request, error)


async def _handle_validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = error.errors()[:5]
    if errors[0]["type"] == "json_invalid":
        return build_error_problem(
            request, invalid_json(str(error.body), errors[0]["loc"][-1], errors[0]["ctx"]["error"])
        )
    return build_problem(
        request,
        422,
        "INVALID_REQUEST",
        format_invalid_fields(errors),
        MISSING_CONTENT_TYPE_REMEDY if isinstance(error.body, bytes) else format_remedy(errors),
    )


def invalid_json(text: str, error_index: int, reason: str) -> InvalidRequest:
    """Build the error. `error_index` is the offset in `text` where parsing failed."""
    line = text.count("\n", 0, error_index) + 1
    column = error_index - text.rfind("\n", 0, error_index)
    return InvalidRequest(
        f"The body is not valid JSON: {reason} at line {line}, column {column}.",
        remedy="Send well-formed JSON in UTF-8.",
    )


async def _handle_client_disconnect(request: Request, error: Exception) -> Response:
    """Log the disconnect; 499 is the status that proxies log for it."""
    structlog.get_logger("api").info(
        "client_disconnected", request_id=request.scope.get("request_id"), path=request.url.path
    )
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _handle_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = CODE_BY_STATUS.get(error.status_code, HTTPStatus(error.status_code).name)
    return build_problem(
        request,
        error.status_code,
        code,
        str(error.detail),
        REMEDY_BY_STATUS.get(error.status_code, ""),
        dict(error.headers or {}),
    )


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(AnabranchError, _handle_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(ClientDisconnect, _handle_client_disconnect)
    app.add_exception_handler(OSError, _handle_error)
    app.add_exception_handler(Exception, _handle_error)


def format_remedy(errors: Iterable[Mapping[str, Any]]) -> str:
    """Format a remedy for Pydantic's validation errors."""
    return " ".join(dict.fromkeys(_format_error(error) or DEFAULT_REMEDY for error in errors))


def _format_error(error: Mapping[str, Any]) -> str | None:
    kind = error["type"]
    # Pydantic names the type of lists; a bound beside a validator counts "items" of a string.
    if kind in ("too_long", "too_short") and error["ctx"].get("field_type") == "Value":
        kind = f"string_{kind}"
    bound, context = BOUND_DESCRIPTIONS.get(kind), error.get("ctx", {})
    if bound is None:
        return None
    description = PATTERN_DESCRIPTIONS.get(context.get("pattern", "")) or bound.format(**context)
    # The field is named as the sender does: without the part of the request and list indices.
    location = error["loc"]
    parts = location[1:] if location[0] in ("body", "query", "path", "header") else location
    name = ".".join(str(part) for part in parts if not isinstance(part, int)) or "the body"
    return f"{name}: give {description}."
