"""The door. Foreign producers choose their own keys, partitioners and bytes; behind this stage everything is reproducible.

Validates, fetches a URL once, pins the bytes as a blob, gives the document its id and its place among its revisions.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from schemas.errors import EngineUnavailable, InvalidRequest, LimitExceeded, MalformedEvent, NotFound, PermanentError, TransientError, UnreadableDocument
from schemas.events import Content, DocumentAccepted, DocumentReceived, DocumentRemoved, DocumentWithdrawn, Fact
from schemas.ids import sha256_hex, sha256_of_file
from schemas.ports.bundle import Ports, blob_key
from schemas.ports.engines import File, ParsePlan
from schemas.values import BlobRef, DocumentFields, Origin
from streams.memo import memo_key, remembered
from streams.stage import Counted, Stage, Statement
from streams.topics import RAW

VERSION = 1
LONGEST_NAME = 1024
LONGEST_TENANT = 255
_TENANT = re.compile(r"[^\x00-\x1f\x7f/\\.][^\x00-\x1f\x7f/\\]*")
"""A tenant's name is a folder of the blob store, so that none lies within another's."""
Incoming = DocumentReceived | DocumentWithdrawn


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    return [await _pass_on(item.fact, ports) for item in counted]


async def _pass_on(fact: Fact[Incoming], ports: Ports) -> Statement:
    _check_source(fact, ports)
    if isinstance(fact.data, DocumentWithdrawn):
        return Statement(fact, await _removed(fact, fact.data, ports))
    return Statement(fact, await _accepted(fact, fact.data, ports))


def _check_source(fact: Fact[Incoming], ports: Ports) -> None:
    allowed, tenant, name = ports.limits.sources, fact.data.tenant, fact.data.external_id or ""
    if len(name.encode()) > LONGEST_NAME:
        raise MalformedEvent(f"external_id has {len(name.encode())} bytes; {LONGEST_NAME} are allowed")
    if not _TENANT.fullmatch(tenant) or len(tenant.encode()) > LONGEST_TENANT:
        raise MalformedEvent(f"tenant {tenant!r} has a slash or a control character, begins with a dot, or is longer than {LONGEST_TENANT} bytes")
    if allowed and tenant not in allowed.get(fact.source, frozenset()):
        remedy = "Name the source and its tenants in ANABRANCH_INGEST__SOURCES."
        raise PermanentError(f"source {fact.source!r} may not write for tenant {tenant!r}", code="FORBIDDEN_TENANT", remedy=remedy)


async def _accepted(fact: Fact[Incoming], data: DocumentReceived, ports: Ports) -> DocumentAccepted:
    incoming, filename = await _incoming(fact, data, ports)
    if incoming.size == 0:
        raise UnreadableDocument(
            "the document has 0 bytes", code="EMPTY_DOCUMENT", remedy="Send the file's content; to remove a document send document.withdrawn.v1."
        )
    identity = data.document(_numbered(fact), incoming.sha256)
    assert identity is not None, "bytes have a hash"
    blob = await _pinned(incoming, data.tenant, identity, ports)
    plan = await _looked_at(blob, data, filename, ports)
    fields = data.model_dump(include=set(DocumentFields.model_fields))
    return DocumentAccepted.model_validate(
        fields
        | {
            "tenant": data.tenant,
            "document_id": identity,
            "order": _order(fact, ports),
            "origin": _origin(fact, data.external_id),
            "external_id": data.external_id,
            "filename": filename,
            "media_type": plan.media_type,
            "source_uri": data.source_uri or data.content.url,
            "blob": blob.model_copy(update={"media_type": plan.media_type}),
            "payload_sha256": fact.payload_sha256,
            "received_at": _moment(fact),
            "numbered": bool(_numbered(fact)),
            "force": data.force,
        }
    )


async def _removed(fact: Fact[Incoming], data: DocumentWithdrawn, ports: Ports) -> DocumentRemoved:
    identity = data.document(_numbered(fact))
    if identity is None:
        raise MalformedEvent(f"document_id {data.document_id!r} is not a UUID")
    latest = await ports.revisions.latest(data.tenant, identity)
    if latest is None and data.external_id is None:
        # Its acceptance may still be on its way to the table.
        raise TransientError(f"tenant {data.tenant!r} has no document {identity}", code=NotFound.code, remedy="GET /v1/documents lists them.")
    order = _order(fact, ports)
    if fact.sequence is None and latest is not None and latest.numbered and latest.order is not None:
        order = [*latest.order[:2], 1]
    external_id = data.external_id or (latest.external_id if latest else None)
    return DocumentRemoved(
        tenant=data.tenant,
        document_id=identity,
        order=order,
        origin=_origin(fact, external_id),
        external_id=external_id,
        payload_sha256=fact.payload_sha256,
        received_at=_moment(fact),
        numbered=fact.sequence is not None or bool(latest and latest.numbered),
        reason=data.reason,
    )


def _numbered(fact: Fact[Incoming]) -> str:
    """The source's name if it numbers its changes: then the document belongs to it."""
    return fact.source if fact.sequence is not None else ""


def _order(fact: Fact[Incoming], ports: Ports) -> list[int]:
    if fact.sequence is not None:
        epoch = fact.epoch if fact.epoch is not None else ports.source_epochs.get(fact.source, 1)
        return [epoch, fact.sequence, 0, *([fact.step] if fact.step else [])]
    assert fact.position is not None and fact.appended_at is not None
    return ports.stamp(fact.position, fact.appended_at)


def _origin(fact: Fact[Incoming], external_id: str | None) -> Origin:
    return Origin(accepted_id=fact.id, event_id=fact.event_id, source=fact.source, external_id=external_id)


def _moment(fact: Fact[Incoming]) -> datetime:
    return fact.appended_at or datetime.fromtimestamp(0, UTC)


async def _incoming(fact: Fact[Incoming], data: DocumentReceived, ports: Ports) -> tuple[BlobRef, str | None]:
    """The bytes in the blob store, not yet under the document's own key, and the document's filename."""
    content = data.content
    if content.storage_key is not None:
        return await _uploaded(content.storage_key, data, ports), data.filename
    if content.url is not None:
        return await _fetched(fact, content.url, data, ports)
    payload = _inline(content, ports)
    return await ports.blobs.put(f"uploads/{data.tenant}/inline/{sha256_hex(payload)}", payload), data.filename or _text_name(content)


def _text_name(content: Content) -> str | None:
    return "document.md" if content.text is not None else None


def _inline(content: Content, ports: Ports) -> bytes:
    if content.text is not None:
        payload = content.text.encode()
    else:
        try:
            payload = base64.b64decode(content.base64 or "", validate=True)
        except binascii.Error as error:
            raise MalformedEvent(f"content.base64 is not base64: {error}", code="NOT_BASE64") from error
    if len(payload) > ports.limits.inline_bytes:
        raise LimitExceeded(
            f"inline content of {len(payload)} bytes is over the limit of {ports.limits.inline_bytes}",
            code="INLINE_TOO_LARGE",
            remedy="Upload the file and send its storage_key, or send a url; or raise ANABRANCH_INGEST__INLINE_BYTES.",
        )
    return payload


async def _uploaded(key: str, data: DocumentReceived, ports: Ports) -> BlobRef:
    if not key.startswith(f"uploads/{data.tenant}/") or ".." in key.split("/"):
        raise InvalidRequest(
            f"storage_key {key!r} does not lie under uploads/{data.tenant}/", code="FORBIDDEN_KEY", remedy=f"Put the file under uploads/{data.tenant}/."
        )
    size = await ports.blobs.size(key)
    if size is None:
        raise NotFound(f"there is no blob under storage_key {key!r}", code="NO_SUCH_BLOB", remedy="Upload the file first, then send the event.")
    _check_size(size, ports)
    async with ports.blobs.local(key) as path:
        digest = await asyncio.to_thread(sha256_of_file, path)
    return BlobRef(key=key, sha256=digest, size=size)


async def _fetched(fact: Fact[Incoming], url: str, data: DocumentReceived, ports: Ports) -> tuple[BlobRef, str | None]:
    """Fetched once for an event: a retry gets the bytes of the first time."""

    async def ask(_: list[int]) -> list[bytes]:
        try:
            fetched = await ports.fetcher.fetch(url, f"uploads/{data.tenant}/fetched/")
        except EngineUnavailable as error:
            # An address is no engine of ours: it gets a few tries, not patience without end.
            raise TransientError(error.detail, code="FETCH_FAILED", remedy="Check that the address answers, then send it again.") from error
        return [b"\n".join([fetched.blob.model_dump_json().encode(), (fetched.filename or "").encode()])]

    key = memo_key(data.tenant, fact.id, "fetch", f"{fact.id} {url}".encode())
    answer = (await remembered(ports.memo, [key], ask))[0]
    blob, _, name = answer.partition(b"\n")
    return BlobRef.model_validate_json(blob), data.filename or name.decode() or None


def _check_size(size: int, ports: Ports) -> None:
    if size > ports.limits.max_bytes:
        raise LimitExceeded(
            f"the document has {size} bytes, the limit is {ports.limits.max_bytes}", code="TOO_LARGE", remedy="Split it, or raise ANABRANCH_INGEST__MAX_BYTES."
        )


async def _pinned(incoming: BlobRef, tenant: str, identity: UUID, ports: Ports) -> BlobRef:
    _check_size(incoming.size, ports)
    key = blob_key(tenant, identity, incoming.sha256)
    if await ports.blobs.size(key) != incoming.size:
        await ports.blobs.copy(incoming.key, key)
    return incoming.model_copy(update={"key": key})


async def _looked_at(blob: BlobRef, data: DocumentReceived, filename: str | None, ports: Ports) -> ParsePlan:
    """Type, page and archive limits, before anything else is spent on the document."""
    async with ports.blobs.local(blob.key) as path:
        return await ports.parser.plan(File(path, filename, data.media_type, blob.size, data.title, data.language))


STAGE = Stage("receive", RAW, VERSION, counts="door", react=react, batch=1, shared=True)
