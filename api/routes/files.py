"""A document's bytes, as they came."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from api.access import Use
from api.ranges import requested_range
from schemas.errors import NotFound
from schemas.ports.engines import Blobs

router = APIRouter(tags=["documents"])
PIECE = 1024 * 1024


@router.get("/documents/{document}/file", operation_id="get_file", response_class=StreamingResponse)
async def file(document: UUID, use: Use, range_: Annotated[str | None, Header(alias="Range")] = None) -> StreamingResponse:
    """The whole file, or one range of it."""
    found = await use.documents.get(use.tenant, document)
    if found is None or not found.get("blob"):
        raise NotFound(f"no file of document {document}", remedy="GET /v1/documents lists the documents.")
    key, size = found["blob"]["key"], found["blob"]["size"]
    part = requested_range(range_, size)
    start, end = part or (0, size)
    headers = _headers(found) | {"Content-Length": str(end - start)} | ({"Content-Range": f"bytes {start}-{end - 1}/{size}"} if part else {})
    media_type = found.get("media_type") or "application/octet-stream"
    return StreamingResponse(_bytes(use.blobs, key, start, end), 206 if part else 200, headers, media_type)


def _headers(found: dict[str, object]) -> dict[str, str]:
    name = quote(str(found.get("filename") or found["document_id"]), safe="")
    return {
        "Accept-Ranges": "bytes",
        "ETag": f'"{found.get("content_sha256")}"',
        "Content-Disposition": f"inline; filename*=UTF-8''{name}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox",
    }


async def _bytes(blobs: Blobs, key: str, start: int, end: int) -> AsyncIterator[bytes]:
    for offset in range(start, end, PIECE):
        (piece,) = await blobs.get_ranges(key, [(offset, min(PIECE, end - offset))])
        yield piece
