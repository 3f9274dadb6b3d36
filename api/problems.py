"""Every error as a problem document (RFC 9457), with a code for programs and a remedy for people. A client's mistake is never a 5xx."""

from __future__ import annotations

import errno
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.bounds import remedy_of
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
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5
CLIENT_GONE = 499
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
"""Of every answer."""
UNTYPED = "Send JSON with the header Content-Type: application/json, and compare it with /openapi.json."

STATUS_OF_CODE = {
    "FORBIDDEN_KEY": 403,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "DUPLICATE_ID": 409,
    "IDEMPOTENCY_KEY_REUSED": 422,
    "RANGE_NOT_SATISFIABLE": 416,
    "NO_SPACE": 507,
} | dict.fromkeys(("GENERATION_BEHIND", "GENERATION_IS_LIVE", "GENERATION_NOT_LIVE", "NOT_RETAINED", "PLACE_AHEAD"), 409)
STATUS_OF_KIND: tuple[tuple[type[AnabranchError], int], ...] = (
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

CODE_OF_STATUS = {400: "BAD_REQUEST", 404: "NO_SUCH_PATH", 405: "METHOD_NOT_ALLOWED", 408: "REQUEST_TIMEOUT", 413: "TOO_LARGE", 415: "UNSUPPORTED_MEDIA_TYPE"}
REMEDY_OF_STATUS = {
    400: "Send well-formed JSON in UTF-8.",
    404: "See /docs for the paths there are.",
    408: "Send the body without pauses; ANABRANCH_API__MIN_UPLOAD_RATE bounds how slow an upload may be.",
    413: "Send a file as multipart form, or raise ANABRANCH_INGEST__MAX_BYTES.",
    405: "See /docs for the methods of this path.",
}

Problem: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "remedy": {"type": "string"},
        "instance": {"type": "string"},
        "request_id": {"type": "string"},
    },
}


def status_of(error: AnabranchError) -> int:
    if error.code in STATUS_OF_CODE:
        return STATUS_OF_CODE[error.code]
    return next((status for kind, status in STATUS_OF_KIND if isinstance(error, kind)), 500)


def problem(request: Request, status: int, code: str, detail: str, remedy: str = "", headers: dict[str, str] | None = None) -> JSONResponse:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "remedy": remedy,
        "instance": request.url.path,
        "request_id": request.scope.get("request_id", ""),
    }
    # The answer to a bug is written outside of all middleware, so it brings its id and the other headers along.
    own = {"X-Request-ID": body["request_id"], **SECURITY_HEADERS} if status == HTTPStatus.INTERNAL_SERVER_ERROR else {}
    extra = {"Retry-After": str(RETRY_AFTER_S)} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return JSONResponse(body, status, media_type=MEDIA_TYPE, headers=own | extra | (headers or {}))


def problem_of(request: Request, error: Exception) -> JSONResponse:
    """Of any error; one that is none of ours is a bug, and logged as such."""
    if isinstance(error, AnabranchError):
        headers = {"WWW-Authenticate": 'Bearer realm="anabranch"'} if isinstance(error, Unauthenticated) else None
        return problem(request, status_of(error), error.code, error.detail, error.remedy, headers)
    structlog.get_logger("api").error("request failed", request_id=request.scope.get("request_id"), path=request.url.path, exc_info=error)
    return problem(request, 500, "BUG", "an error of ours; the server's log has it under this request id", "Report it with the request id.")


async def _answered(request: Request, error: Exception) -> JSONResponse:
    return problem_of(request, error)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = error.errors()[:5]
    if found[0]["type"] == "json_invalid":
        return problem_of(request, no_json(str(error.body), found[0]["loc"][-1], found[0]["ctx"]["error"]))
    problems = "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['msg'].removeprefix('Value error, ')}" for item in found)
    return problem(request, 422, "INVALID_REQUEST", problems, UNTYPED if isinstance(error.body, bytes) else remedy_of(found))


def no_json(text: str, place: int, why: str) -> InvalidRequest:
    """`place` is where reading ended, as an index into the text."""
    line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
    return InvalidRequest(f"the body is not JSON: {why} at line {line}, column {column}", remedy="Mend it there: send well-formed JSON in UTF-8.")


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody is there to read it; 499 as proxies write it into their logs."""
    structlog.get_logger("api").info("the client went away", request_id=request.scope.get("request_id"), path=request.url.path)
    return Response(status_code=CLIENT_GONE)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = CODE_OF_STATUS.get(error.status_code, HTTPStatus(error.status_code).name)
    return problem(request, error.status_code, code, str(error.detail), REMEDY_OF_STATUS.get(error.status_code, ""), dict(error.headers or {}))


async def _os(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return problem_of(request, NoSpace("no space is left on the disk"))
    return problem_of(request, error)


def install(app: FastAPI) -> None:
    app.add_exception_handler(AnabranchError, _answered)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(OSError, _os)
    app.add_exception_handler(Exception, _answered)
