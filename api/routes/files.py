"""The original file of a document."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from api.operations import PUBLIC, OperationRoute, operation
from api.services import Caller, RevisionNumber, Services, ServicesDep
from api.sessions import LinkTarget
from schemas.errors import InvalidRequest, NotFound, unknown_resource_error
from schemas.ports.engines import BlobStore
from schemas.principals import Principal

router = APIRouter(route_class=OperationRoute, tags=["documents"])
READ_BYTES = 1024 * 1024
LINK_LIFETIME = timedelta(minutes=15)
RangeHeader = Annotated[str | None, Header(alias="Range")]
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)", re.ASCII)
# No file offset has more digits, and Python refuses to parse thousands of them.
MAX_DIGITS = 19


class SignedLink(BaseModel):
    """A link that gives anyone access to the file until it expires."""

    url: str
    expires_at: datetime


@router.get(
    "/documents/{document}/file",
    operation_id="get_file",
    response_model=None,
    responses={200: {"model": SignedLink, "content": {"application/octet-stream": {}}}},
)
@operation("reader", problems="404 NOT_FOUND 416 RANGE_NOT_SATISFIABLE")
async def get_file(
    document: UUID,
    services: ServicesDep,
    caller: Caller,
    request: Request,
    range_: RangeHeader = None,
    signed: bool = False,
    revision: RevisionNumber = None,
) -> StreamingResponse | SignedLink:
    """Get the file or one range of it, or with `signed=true` an expiring link to it.

    The latest file, or with `revision` that of one revision, superseded ones included.
    """
    if revision is not None:
        if signed:
            raise InvalidRequest(
                "A signed link serves the latest revision.", remedy="Omit `revision`."
            )
        fields = await services.documents.fetch_revision_file(caller, document, revision)
        return _stream_file(_require_file(document, fields), services, range_)
    document_fields = _require_file(
        document, await services.documents.fetch_document(caller, document)
    )
    if not signed:
        return _stream_file(document_fields, services, range_)
    target = LinkTarget(caller.tenant, document, document_fields["revision"])
    return await _create_signed_link(target, document_fields["blob"]["key"], services, request)


@router.get(
    "/signed/{tenant}/{document}",
    operation_id="get_signed_file",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
@operation(PUBLIC, problems="404 NOT_FOUND 416 RANGE_NOT_SATISFIABLE 422 LINK_EXPIRED LINK_FORGED")
async def get_signed_file(
    tenant: Annotated[str, Path(max_length=64)],
    document: UUID,
    services: ServicesDep,
    revision: int,
    expires: Annotated[int, Query(description="Unix time in seconds.")],
    signature: str,
    range_: RangeHeader = None,
) -> StreamingResponse:
    """Get the file behind a signed link, without a credential.

    Serves one revision, while it is the latest.
    """
    services.link_signer.verify(
        LinkTarget(tenant, document, revision), expires, signature, datetime.now(UTC)
    )
    fields = await services.documents.fetch_document(Principal("signed link", tenant), document)
    document_fields = _require_file(document, fields)
    # The link was given for one revision: a later one may have other content.
    if document_fields["revision"] != revision:
        raise unknown_file(document)
    return _stream_file(document_fields, services, range_)


def _require_file(document: UUID, fields: dict[str, Any] | None) -> dict[str, Any]:
    if fields is None or not fields.get("blob"):
        raise unknown_file(document)
    return fields


def unknown_file(document: UUID) -> NotFound:
    return unknown_resource_error(
        "file of document", document, "List documents with GET /v1/documents."
    )


def _stream_file(
    document_fields: dict[str, Any], services: Services, range_: str | None
) -> StreamingResponse:
    key, size = document_fields["blob"]["key"], document_fields["blob"]["size"]
    byte_range = parse_range(range_, size)
    start, end = byte_range or (0, size)
    name = quote(str(document_fields.get("filename") or document_fields["document_id"]), safe="")
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": f'"{document_fields.get("content_sha256")}"',
        "Content-Disposition": f"inline; filename*=UTF-8''{name}",
        # Uploaded HTML is shown from this origin: the sandbox keeps its scripts from running.
        "Content-Security-Policy": "sandbox; frame-ancestors 'none'",
        "Content-Length": str(end - start),
    }
    if byte_range:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    media_type = document_fields.get("media_type") or "application/octet-stream"
    return StreamingResponse(
        _iterate_bytes(services.blobs, key, start, end),
        206 if byte_range else 200,
        headers,
        media_type,
    )


async def _create_signed_link(
    target: LinkTarget, key: str, services: Services, request: Request
) -> SignedLink:
    """Let the blob store sign the link if it can."""
    expires = datetime.now(UTC).replace(microsecond=0) + LINK_LIFETIME
    expires_at_s = int(expires.timestamp())
    url = await services.blobs.presign_url(key, LINK_LIFETIME.total_seconds())
    if url is None:
        path = request.app.url_path_for(
            "get_signed_file", tenant=target.tenant, document=str(target.document_id)
        )
        signature = services.link_signer.sign(target, expires_at_s)
        url = (
            # The guard has checked the host: without a public address, the link is to this one.
            f"{services.public_url or str(request.base_url).rstrip('/')}{path}"
            f"?revision={target.revision}&expires={expires_at_s}&signature={signature}"
        )
    return SignedLink(url=url, expires_at=expires)


async def _iterate_bytes(blobs: BlobStore, key: str, start: int, end: int) -> AsyncIterator[bytes]:
    # In pieces, so that a large file is never whole in memory.
    for offset in range(start, end, READ_BYTES):
        (data,) = await blobs.get_ranges(key, [(offset, min(READ_BYTES, end - offset))])
        yield data


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte and the one after the last; None for the whole file.

    None also for headers that may be ignored, such as several ranges. Raises InvalidRequest with
    code RANGE_NOT_SATISFIABLE.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if header is None or match is None or match.group(0) == "bytes=-":
        return None
    # Leading zeros do not count; one digit stays, since `0` is a position.
    first, last = (digits.lstrip("0") or digits[:1] for digits in match.groups())
    if max(len(first), len(last)) > MAX_DIGITS:
        raise build_unsatisfiable_range(f"{header[:40]}…", size)
    start, end = (
        (int(first), int(last) + 1 if last else size) if first else (max(0, size - int(last)), size)
    )
    if start >= size or end <= start:
        raise build_unsatisfiable_range(header, size)
    return start, min(end, size)


def build_unsatisfiable_range(header: str, size: int) -> InvalidRequest:
    return InvalidRequest(
        f"Range {header} is outside the file's {size} bytes.",
        code="RANGE_NOT_SATISFIABLE",
        remedy=f"Request a range below {size}.",
    )
