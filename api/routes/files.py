"""A document's bytes, as they came."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Annotated
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from api.access import Use
from api.ranges import requested_range
from api.services import Services
from schemas.errors import NotFound
from schemas.ports.engines import Blobs

router = APIRouter(tags=["documents"])
PIECE = 1024 * 1024
LIFETIME = timedelta(minutes=15)


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
async def file(
    document: UUID,
    use: Use,
    request: Request,
    range_: Annotated[str | None, Header(alias="Range")] = None,
    signed: bool = False,
    expires: Annotated[int | None, Query(description="of a signed link, in seconds since 1970")] = None,
    signature: str | None = None,
) -> StreamingResponse | SignedLink:
    """The whole file, or one range of it; with `signed=true` a link to it that expires."""
    if signature is not None:
        use.links.check(document, expires or 0, signature, datetime.now(UTC))
    found = await use.documents.get(use.tenant, document)
    if found is None or not found.get("blob"):
        raise NotFound(f"no file of document {document}", remedy="GET /v1/documents lists the documents.")
    key, size = found["blob"]["key"], found["blob"]["size"]
    if signed:
        return await _signed(document, key, use, f"{use.public_url}{request.app.url_path_for('file', document=str(document))}")
    part = requested_range(range_, size)
    start, end = part or (0, size)
    headers = _headers(found) | {"Content-Length": str(end - start)} | ({"Content-Range": f"bytes {start}-{end - 1}/{size}"} if part else {})
    media_type = found.get("media_type") or "application/octet-stream"
    return StreamingResponse(_bytes(use.blobs, key, start, end), 206 if part else 200, headers, media_type)


async def _signed(document: UUID, key: str, use: Services, address: str) -> SignedLink:
    """By the store itself where it can, else by us."""
    expires = datetime.now(UTC).replace(microsecond=0) + LIFETIME
    moment = int(expires.timestamp())
    url = await use.blobs.link(key, LIFETIME.total_seconds()) or f"{address}?expires={moment}&signature={use.links.sign(document, moment)}"
    return SignedLink(url=url, expires_at=expires)


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
