"""Bytes on their way to the place where they stay: under the document's own key. What was put somewhere for the event alone goes then."""

from __future__ import annotations

import asyncio
import base64
from uuid import UUID

import structlog

from schemas.errors import EngineUnavailable, InvalidRequest, LimitExceeded, MalformedEvent, NotFound, TransientError, UnreadableDocument
from schemas.events import Content, DocumentAmended, DocumentReceived, DocumentWithdrawn, Event
from schemas.ids import sha256_hex, sha256_of_file
from schemas.ports.stage_ports import StagePorts, make_blob_key
from schemas.staging import api_staging_prefix, fetch_staging_prefix, upload_staging_prefix
from schemas.values import BlobRef
from streams.memoize import build_memo_key, memoize

log = structlog.get_logger(__name__)
IngressData = DocumentReceived | DocumentAmended | DocumentWithdrawn


async def pin_bytes(event: Event[IngressData], data: DocumentReceived, ports: StagePorts) -> tuple[BlobRef, str | None]:
    """The document's bytes under its own key, and its filename. Raises PermanentError for what may not come in."""
    incoming, filename = await _store_incoming(event, data, ports)
    _check_size(incoming.size, ports)
    blob = await _copy_to_pinned(incoming, _make_pinned_key(event, data, incoming.sha256), ports)
    await _delete_staged(incoming.key, event, data.tenant, ports)
    return blob, filename


def require_document_id(event: Event[IngressData], data: DocumentReceived, sha256: str) -> UUID:
    document_id = data.resolve_document_id(get_numbering_source(event), sha256)
    assert document_id is not None, "bytes have a hash"
    return document_id


def get_numbering_source(event: Event[IngressData]) -> str:
    """The source's name if it numbers its changes: then the document belongs to it."""
    return event.source if event.sequence is not None else ""


async def _store_incoming(event: Event[IngressData], data: DocumentReceived, ports: StagePorts) -> tuple[BlobRef, str | None]:
    """The bytes in the blob store, not yet under the document's own key, and the document's filename."""
    content = data.content
    if content.storage_key is not None:
        return await _find_upload(event, content.storage_key, data, ports), data.filename
    if content.url is not None:
        return await _fetch_url(event, content.url, data, ports)
    return await _put_inline(event, data, _decode_inline(content, ports), ports), data.filename


async def _put_inline(event: Event[IngressData], data: DocumentReceived, payload: bytes, ports: StagePorts) -> BlobRef:
    """Inline bytes are pinned at once."""
    _check_size(len(payload), ports)
    return await ports.blobs.put(_make_pinned_key(event, data, sha256_hex(payload)), payload)


def _make_pinned_key(event: Event[IngressData], data: DocumentReceived, sha256: str) -> str:
    return make_blob_key(data.tenant, require_document_id(event, data, sha256), sha256)


def _decode_inline(content: Content, ports: StagePorts) -> bytes:
    if content.text is not None:
        payload = content.text.encode()
    else:
        try:
            payload = base64.b64decode(content.base64 or "", validate=True)
        except ValueError as error:
            raise MalformedEvent(f"content.base64 is not base64: {error}", code="NOT_BASE64") from error
    if len(payload) > ports.limits.inline_bytes:
        raise LimitExceeded(
            f"inline content of {len(payload)} bytes is over the limit of {ports.limits.inline_bytes}",
            code="INLINE_TOO_LARGE",
            remedy="Upload the file and send its storage_key, or send a url; or raise ANABRANCH_INGEST__INLINE_BYTES.",
        )
    return payload


async def _find_upload(event: Event[IngressData], key: str, data: DocumentReceived, ports: StagePorts) -> BlobRef:
    """What was staged for this very event and is gone has been pinned by an earlier try: then the pinned bytes are the upload."""
    check_storage_key(key, data.tenant, event.id)
    try:
        return await _inspect_blob(key, ports)
    except NotFound:
        if not key.startswith(upload_staging_prefix(data.tenant, event.id)):
            raise
        return await _inspect_blob(_make_pinned_key(event, data, key.rpartition("/")[2]), ports)


def check_storage_key(key: str, tenant: str, event_id: UUID | None = None) -> None:
    """Raises InvalidRequest with code FORBIDDEN_KEY for a place outside the tenant's uploads, and for one that the API keeps for another event."""
    folder = f"uploads/{tenant}/"
    if not key.startswith(folder) or ".." in key.split("/"):
        raise InvalidRequest(f"storage_key {key!r} does not lie under {folder}", code="FORBIDDEN_KEY", remedy=f"Put the file under {folder}.")
    is_own = event_id is not None and key.startswith(upload_staging_prefix(tenant, event_id))
    if key.startswith(api_staging_prefix(tenant)) and not is_own:
        remedy = f"What lies under {api_staging_prefix(tenant)} goes once its upload has been taken in: put the file elsewhere under {folder}."
        raise InvalidRequest(f"storage_key {key!r} belongs to an upload of the API", code="FORBIDDEN_KEY", remedy=remedy)


async def _inspect_blob(key: str, ports: StagePorts) -> BlobRef:
    size = await ports.blobs.get_size(key)
    if size is None:
        raise _missing_blob_error(key)
    _check_size(size, ports)
    try:
        async with ports.blobs.open_local(key) as path:
            digest = await asyncio.to_thread(sha256_of_file, path)
    except FileNotFoundError as error:
        raise _missing_blob_error(key) from error
    return BlobRef(key=key, sha256=digest, size=size)


async def _fetch_url(event: Event[IngressData], url: str, data: DocumentReceived, ports: StagePorts) -> tuple[BlobRef, str | None]:
    """Fetched once for an event: a retry gets the bytes of the first time."""

    async def ask(_: list[int]) -> list[bytes]:
        try:
            fetched_file = await ports.fetcher.fetch(url, fetch_staging_prefix(data.tenant, event.id))
        except EngineUnavailable as error:
            # An address is no engine of ours: it gets a few tries, not patience without end.
            raise TransientError(error.detail, code="FETCH_FAILED", remedy="Check that the address answers, then send it again.") from error
        return [b"\n".join([fetched_file.blob.model_dump_json().encode(), (fetched_file.filename or "").encode()])]

    key = build_memo_key(data.tenant, event.id, "fetch", f"{event.id} {url}".encode())
    cached_result = (await memoize(ports.memo, [key], ask))[0]
    blob, _, name = cached_result.partition(b"\n")
    return BlobRef.model_validate_json(blob), data.filename or name.decode() or None


def _missing_blob_error(key: str) -> NotFound:
    return NotFound(f"there is no blob under storage_key {key!r}", code="NO_SUCH_BLOB", remedy="Upload the file first, then send the event.")


def _check_size(size: int, ports: StagePorts) -> None:
    if size == 0:
        remedy = "Send the file's content; to remove a document send document.withdrawn.v1."
        raise UnreadableDocument("the document has 0 bytes", code="EMPTY_DOCUMENT", remedy=remedy)
    if size > ports.limits.max_bytes:
        raise LimitExceeded(
            f"the document has {size} bytes, the limit is {ports.limits.max_bytes}", code="TOO_LARGE", remedy="Split it, or raise ANABRANCH_INGEST__MAX_BYTES."
        )


async def _copy_to_pinned(incoming: BlobRef, key: str, ports: StagePorts) -> BlobRef:
    if await ports.blobs.get_size(key) != incoming.size:
        try:
            await ports.blobs.copy(incoming.key, key)
        except NotFound:
            # The same event in another worker has pinned it meanwhile, and cleared up.
            if await ports.blobs.get_size(key) != incoming.size:
                raise
    return incoming.model_copy(update={"key": key})


async def _delete_staged(key: str, event: Event[IngressData], tenant: str, ports: StagePorts) -> None:
    """Bytes that were put there for this event alone go once they are pinned: whoever reads the event again finds the pinned ones. What a producer
    manages itself stays. A store that does not delete costs room, and no document."""
    if not key.startswith((upload_staging_prefix(tenant, event.id), fetch_staging_prefix(tenant, event.id))):
        return
    try:
        await ports.blobs.delete([key])
    except NotFound:
        log.debug("staged bytes are gone already", key=key)
    except EngineUnavailable as error:
        log.warning("staged bytes stay", key=key, detail=error.detail)
