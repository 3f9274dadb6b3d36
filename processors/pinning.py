"""Bytes on their way to the place where they stay: under the document's own key. What was put somewhere for the event alone goes then."""

from __future__ import annotations

import asyncio
import base64
from uuid import UUID

import structlog

from schemas.errors import EngineUnavailable, InvalidRequest, LimitExceeded, MalformedEvent, NotFound, TransientError, UnreadableDocument
from schemas.events import Content, DocumentAmended, DocumentReceived, DocumentWithdrawn, Fact
from schemas.ids import sha256_hex, sha256_of_file
from schemas.ports.bundle import Ports, blob_key
from schemas.staging import fetched_prefix, staged_prefix, staging
from schemas.values import BlobRef
from streams.memo import memo_key, remembered

log = structlog.get_logger(__name__)
Incoming = DocumentReceived | DocumentAmended | DocumentWithdrawn


async def pinned_bytes(fact: Fact[Incoming], data: DocumentReceived, ports: Ports) -> tuple[BlobRef, str | None]:
    """The document's bytes under its own key, and its filename. Raises PermanentError for what may not come in."""
    incoming, filename = await _incoming(fact, data, ports)
    _check_size(incoming.size, ports)
    blob = await _pinned(incoming, _pinned_key(fact, data, incoming.sha256), ports)
    await _unstaged(incoming.key, fact, data.tenant, ports)
    return blob, filename


def identity_of(fact: Fact[Incoming], data: DocumentReceived, sha256: str) -> UUID:
    identity = data.document(numbered(fact), sha256)
    assert identity is not None, "bytes have a hash"
    return identity


def numbered(fact: Fact[Incoming]) -> str:
    """The source's name if it numbers its changes: then the document belongs to it."""
    return fact.source if fact.sequence is not None else ""


async def _incoming(fact: Fact[Incoming], data: DocumentReceived, ports: Ports) -> tuple[BlobRef, str | None]:
    """The bytes in the blob store, not yet under the document's own key, and the document's filename."""
    content = data.content
    if content.storage_key is not None:
        return await _uploaded(fact, content.storage_key, data, ports), data.filename
    if content.url is not None:
        return await _fetched(fact, content.url, data, ports)
    return await _put(fact, data, _inline(content, ports), ports), data.filename


async def _put(fact: Fact[Incoming], data: DocumentReceived, payload: bytes, ports: Ports) -> BlobRef:
    """Inline bytes are pinned at once."""
    _check_size(len(payload), ports)
    return await ports.blobs.put(_pinned_key(fact, data, sha256_hex(payload)), payload)


def _pinned_key(fact: Fact[Incoming], data: DocumentReceived, sha256: str) -> str:
    return blob_key(data.tenant, identity_of(fact, data, sha256), sha256)


def _inline(content: Content, ports: Ports) -> bytes:
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


async def _uploaded(fact: Fact[Incoming], key: str, data: DocumentReceived, ports: Ports) -> BlobRef:
    """What was staged for this very event and is gone has been pinned by an earlier try: then the pinned bytes are the upload."""
    check_storage_key(key, data.tenant, fact.id)
    try:
        return await _measured(key, ports)
    except NotFound:
        if not key.startswith(staged_prefix(data.tenant, fact.id)):
            raise
        return await _measured(_pinned_key(fact, data, key.rpartition("/")[2]), ports)


def check_storage_key(key: str, tenant: str, event: UUID | None = None) -> None:
    """Raises InvalidRequest with code FORBIDDEN_KEY for a place outside the tenant's uploads, and for one that the API keeps for another event."""
    folder = f"uploads/{tenant}/"
    if not key.startswith(folder) or ".." in key.split("/"):
        raise InvalidRequest(f"storage_key {key!r} does not lie under {folder}", code="FORBIDDEN_KEY", remedy=f"Put the file under {folder}.")
    own = event is not None and key.startswith(staged_prefix(tenant, event))
    if key.startswith(staging(tenant)) and not own:
        remedy = f"What lies under {staging(tenant)} goes once its upload has been taken in: put the file elsewhere under {folder}."
        raise InvalidRequest(f"storage_key {key!r} belongs to an upload of the API", code="FORBIDDEN_KEY", remedy=remedy)


async def _measured(key: str, ports: Ports) -> BlobRef:
    size = await ports.blobs.size(key)
    if size is None:
        raise _missing(key)
    _check_size(size, ports)
    try:
        async with ports.blobs.local(key) as path:
            digest = await asyncio.to_thread(sha256_of_file, path)
    except FileNotFoundError as error:
        raise _missing(key) from error
    return BlobRef(key=key, sha256=digest, size=size)


async def _fetched(fact: Fact[Incoming], url: str, data: DocumentReceived, ports: Ports) -> tuple[BlobRef, str | None]:
    """Fetched once for an event: a retry gets the bytes of the first time."""

    async def ask(_: list[int]) -> list[bytes]:
        try:
            fetched = await ports.fetcher.fetch(url, fetched_prefix(data.tenant, fact.id))
        except EngineUnavailable as error:
            # An address is no engine of ours: it gets a few tries, not patience without end.
            raise TransientError(error.detail, code="FETCH_FAILED", remedy="Check that the address answers, then send it again.") from error
        return [b"\n".join([fetched.blob.model_dump_json().encode(), (fetched.filename or "").encode()])]

    key = memo_key(data.tenant, fact.id, "fetch", f"{fact.id} {url}".encode())
    answer = (await remembered(ports.memo, [key], ask))[0]
    blob, _, name = answer.partition(b"\n")
    return BlobRef.model_validate_json(blob), data.filename or name.decode() or None


def _missing(key: str) -> NotFound:
    return NotFound(f"there is no blob under storage_key {key!r}", code="NO_SUCH_BLOB", remedy="Upload the file first, then send the event.")


def _check_size(size: int, ports: Ports) -> None:
    if size == 0:
        remedy = "Send the file's content; to remove a document send document.withdrawn.v1."
        raise UnreadableDocument("the document has 0 bytes", code="EMPTY_DOCUMENT", remedy=remedy)
    if size > ports.limits.max_bytes:
        raise LimitExceeded(
            f"the document has {size} bytes, the limit is {ports.limits.max_bytes}", code="TOO_LARGE", remedy="Split it, or raise ANABRANCH_INGEST__MAX_BYTES."
        )


async def _pinned(incoming: BlobRef, key: str, ports: Ports) -> BlobRef:
    if await ports.blobs.size(key) != incoming.size:
        try:
            await ports.blobs.copy(incoming.key, key)
        except NotFound:
            # The same event in another worker has pinned it meanwhile, and cleared up.
            if await ports.blobs.size(key) != incoming.size:
                raise
    return incoming.model_copy(update={"key": key})


async def _unstaged(key: str, fact: Fact[Incoming], tenant: str, ports: Ports) -> None:
    """Bytes that were put there for this event alone go once they are pinned: whoever reads the event again finds the pinned ones. What a producer
    manages itself stays. A store that does not delete costs room, and no document."""
    if not key.startswith((staged_prefix(tenant, fact.id), fetched_prefix(tenant, fact.id))):
        return
    try:
        await ports.blobs.delete([key])
    except NotFound:
        log.debug("staged bytes are gone already", key=key)
    except EngineUnavailable as error:
        log.warning("staged bytes stay", key=key, detail=error.detail)
