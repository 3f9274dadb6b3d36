"""Pin a document's bytes: copy them to the document's own key, and delete what was staged for the
event.
"""

from __future__ import annotations

import asyncio
import base64
from uuid import UUID

import structlog

from processors.admission import IngressData, check_size, check_storage_key, missing_blob_error
from schemas.blob_keys import fetch_staging_prefix, make_blob_key, upload_staging_prefix
from schemas.errors import (
    EngineUnavailable,
    LimitExceeded,
    MalformedEvent,
    NotFound,
    TransientError,
)
from schemas.events import Content, DocumentReceived, Event
from schemas.ids import sha256_hex, sha256_of_file
from schemas.ports.stage_ports import StagePorts
from schemas.values import BlobRef
from streams.memoize import build_memo_key, memoize

log = structlog.get_logger(__name__)


async def pin_bytes(
    event: Event[IngressData], data: DocumentReceived, ports: StagePorts
) -> tuple[BlobRef, str | None]:
    """Store the document's bytes under its own key. Return their reference and the filename.

    Raises PermanentError if the content is not admitted.
    """
    incoming, filename = await _store_incoming(event, data, ports)
    check_size(incoming.size, ports.limits.max_bytes)
    blob = await _copy_to_pinned(incoming, _make_pinned_key(event, data, incoming.sha256), ports)
    await _delete_staged(incoming.key, event, data.tenant, ports)
    return blob, filename


def require_document_id(event: Event[IngressData], data: DocumentReceived, sha256: str) -> UUID:
    document_id = data.resolve_document_id(get_numbering_source(event), sha256)
    assert document_id is not None, "bytes have a hash"
    return document_id


def get_numbering_source(event: Event[IngressData]) -> str:
    """Return the source if it numbers its changes, and so owns the document; else ''."""
    return event.source if event.sequence is not None else ""


async def _store_incoming(
    event: Event[IngressData], data: DocumentReceived, ports: StagePorts
) -> tuple[BlobRef, str | None]:
    """Store the bytes in the blob store, possibly under a staging key, and return them with the
    filename.
    """
    content = data.content
    if content.storage_key is not None:
        return await _find_upload(event, content.storage_key, data, ports), data.filename
    if content.url is not None:
        return await _fetch_url(event, content.url, data, ports)
    payload = _decode_inline(content, ports)
    check_size(len(payload), ports.limits.max_bytes)
    # Inline bytes need no staging: their hash, and so the pinned key, is known before they are
    # stored.
    return await ports.blobs.put(
        _make_pinned_key(event, data, sha256_hex(payload)), payload
    ), data.filename


def _make_pinned_key(event: Event[IngressData], data: DocumentReceived, sha256: str) -> str:
    return make_blob_key(data.tenant, require_document_id(event, data, sha256), sha256)


def _decode_inline(content: Content, ports: StagePorts) -> bytes:
    if content.text is not None:
        payload = content.text.encode()
    else:
        try:
            payload = base64.b64decode(content.base64 or "", validate=True)
        except ValueError as error:
            raise MalformedEvent(
                f"content.base64 is not valid base64: {error}.", code="NOT_BASE64"
            ) from error
    if len(payload) > ports.limits.inline_bytes:
        raise LimitExceeded(
            f"Inline content of {len(payload)} bytes exceeds the limit of {ports.limits.inline_bytes}.",
            code="INLINE_TOO_LARGE",
            remedy="Upload the file and send its storage_key, send a url, or raise ANABRANCH_INGEST__INLINE_BYTES.",
        )
    return payload


async def _find_upload(
    event: Event[IngressData], key: str, data: DocumentReceived, ports: StagePorts
) -> BlobRef:
    check_storage_key(key, data.tenant, event.id)
    try:
        return await _inspect_blob(key, ports)
    except NotFound:
        # An earlier attempt at this event has pinned its upload and deleted the staged copy.
        if not key.startswith(upload_staging_prefix(data.tenant, event.id)):
            raise
        return await _inspect_blob(_make_pinned_key(event, data, key.rpartition("/")[2]), ports)


async def _inspect_blob(key: str, ports: StagePorts) -> BlobRef:
    size = await ports.blobs.get_size(key)
    if size is None:
        raise missing_blob_error(key)
    check_size(size, ports.limits.max_bytes)
    try:
        async with ports.blobs.open_local(key) as path:
            digest = await asyncio.to_thread(sha256_of_file, path)
    except FileNotFoundError as error:
        raise missing_blob_error(key) from error
    return BlobRef(key=key, sha256=digest, size=size)


async def _fetch_url(
    event: Event[IngressData], url: str, data: DocumentReceived, ports: StagePorts
) -> tuple[BlobRef, str | None]:
    """Download the URL once per event; a retry gets the bytes of the first download."""

    async def fetch(_: list[int]) -> list[bytes]:
        try:
            fetched_file = await ports.fetcher.fetch(
                url, fetch_staging_prefix(data.tenant, event.id)
            )
        except EngineUnavailable as error:
            # A foreign server gets a limited number of retries, unlike our engines.
            raise TransientError(
                error.detail,
                code="FETCH_FAILED",
                remedy="Check that the URL responds, then send the document again.",
            ) from error
        return [
            b"\n".join(
                [
                    fetched_file.blob.model_dump_json().encode(),
                    (fetched_file.filename or "").encode(),
                ]
            )
        ]

    key = build_memo_key(data.tenant, event.id, "fetch", f"{event.id} {url}".encode())
    cached_result = (await memoize(ports.memo, [key], fetch))[0]
    blob, _, name = cached_result.partition(b"\n")
    return BlobRef.model_validate_json(blob), data.filename or name.decode() or None


async def _copy_to_pinned(incoming: BlobRef, key: str, ports: StagePorts) -> BlobRef:
    if await ports.blobs.get_size(key) != incoming.size:
        try:
            await ports.blobs.copy(incoming.key, key)
        except NotFound:
            # Another worker has pinned the same event meanwhile and deleted the staged copy.
            if await ports.blobs.get_size(key) != incoming.size:
                raise
    return incoming.model_copy(update={"key": key})


async def _delete_staged(
    key: str, event: Event[IngressData], tenant: str, ports: StagePorts
) -> None:
    """Delete bytes that were staged for this event alone. Uploads that a producer manages itself stay.

    A failure to delete wastes space but does no harm, so it is only logged.
    """
    if not key.startswith(
        (upload_staging_prefix(tenant, event.id), fetch_staging_prefix(tenant, event.id))
    ):
        return
    try:
        await ports.blobs.delete([key])
    except NotFound:
        log.debug("staged_blob_already_deleted", key=key)
    except EngineUnavailable as error:
        log.warning("staged_blob_not_deleted", key=key, detail=error.detail)
