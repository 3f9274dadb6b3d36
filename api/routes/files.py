"""A document's bytes, as they came."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from api.access import Caller, Use
from api.links import Linked
from api.ranges import requested_range
from api.services import Services
from schemas.errors import NotFound
from schemas.ports.engines import Blobs
from schemas.principals import Principal

router = APIRouter(tags=["documents"])
PIECE = 1024 * 1024
LIFETIME = timedelta(minutes=15)
Part = Annotated[str | None, Header(alias="Range")]


class SignedLink(BaseModel):
    """Anybody who has the address may read the file until it expires."""

    url: str
    expires_at: datetime


@router.get(
    "/documents/{document}/file",
    operation_id="get_file",
    response_model=None,
    responses={200: {"model": SignedLink, "content": {"application/octet-stream": {}}}},
)
async def file(document: UUID, use: Use, caller: Caller, request: Request, range_: Part = None, signed: bool = False) -> StreamingResponse | SignedLink:
    """The whole file, or one range of it; with `signed=true` a link to it that expires."""
    found = await _found(document, use, caller)
    if not signed:
        return _streamed(found, use, range_)
    linked = Linked(caller.tenant, document, found["revision"])
    return await _signed(linked, found["blob"]["key"], use, request)


@router.get(
    "/signed/{tenant}/{document}",
    operation_id="get_signed_file",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
async def signed_file(
    tenant: Annotated[str, Path(max_length=64)],
    document: UUID,
    use: Use,
    revision: int,
    expires: Annotated[int, Query(description="in seconds since 1970")],
    signature: str,
    range_: Part = None,
) -> StreamingResponse:
    """What a signed link opens: the bytes of one revision, while it is the latest, without a credential."""
    use.links.check(Linked(tenant, document, revision), expires, signature, datetime.now(UTC))
    found = await _found(document, use, Principal("signed link", tenant))
    if found["revision"] != revision:
        raise _unknown(document)
    return _streamed(found, use, range_)


async def _found(document: UUID, use: Services, caller: Principal) -> dict[str, Any]:
    found = await use.documents.get(caller, document)
    if found is None or not found.get("blob"):
        raise _unknown(document)
    return found


def _unknown(document: UUID) -> NotFound:
    return NotFound(f"no file of document {document}", remedy="GET /v1/documents lists the documents.")


def _streamed(found: dict[str, Any], use: Services, range_: str | None) -> StreamingResponse:
    key, size = found["blob"]["key"], found["blob"]["size"]
    part = requested_range(range_, size)
    start, end = part or (0, size)
    headers = _headers(found) | {"Content-Length": str(end - start)} | ({"Content-Range": f"bytes {start}-{end - 1}/{size}"} if part else {})
    media_type = found.get("media_type") or "application/octet-stream"
    return StreamingResponse(_bytes(use.blobs, key, start, end), 206 if part else 200, headers, media_type)


async def _signed(linked: Linked, key: str, use: Services, request: Request) -> SignedLink:
    """By the store itself where it can, else by us."""
    expires = datetime.now(UTC).replace(microsecond=0) + LIFETIME
    moment = int(expires.timestamp())
    address = f"{use.public_url}{request.app.url_path_for('signed_file', tenant=linked.tenant, document=str(linked.document))}"
    url = await use.blobs.link(key, LIFETIME.total_seconds())
    return SignedLink(url=url or f"{address}?revision={linked.revision}&expires={moment}&signature={use.links.sign(linked, moment)}", expires_at=expires)


def _headers(found: dict[str, object]) -> dict[str, str]:
    name = quote(str(found.get("filename") or found["document_id"]), safe="")
    return {
        "Accept-Ranges": "bytes",
        "ETag": f'"{found.get("content_sha256")}"',
        "Content-Disposition": f"inline; filename*=UTF-8''{name}",
        "Content-Security-Policy": "sandbox; frame-ancestors 'none'",
    }


async def _bytes(blobs: Blobs, key: str, start: int, end: int) -> AsyncIterator[bytes]:
    for offset in range(start, end, PIECE):
        (piece,) = await blobs.get_ranges(key, [(offset, min(PIECE, end - offset))])
        yield piece
