"""Ingress: validate external events and admit them to `accepted`.

External producers choose their own keys, partitioners and bytes; everything after this stage is
reproducible. Fetches a URL once, pins the bytes as a blob, and assigns the document's id and the
order among its revisions.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from engines.parse.text import copy_charset
from processors.admission import (
    IngressData,
    admit_change,
    check_owner,
    check_producer,
    check_size,
    check_storage_key,
    check_url_credentials,
    missing_blob_error,
    take_ownership,
)
from schemas.errors import (
    EngineUnavailable,
    LimitExceeded,
    MalformedEvent,
    NotFound,
    TransientError,
)
from schemas.events import (
    AmendmentAccepted,
    Content,
    DocumentAccepted,
    DocumentAmended,
    DocumentReceived,
    DocumentRemoved,
    DocumentWithdrawn,
    Event,
)
from schemas.ids import (
    compute_file_sha256,
    fetch_staging_prefix,
    make_blob_key,
    sha256_hex,
    upload_staging_prefix,
)
from schemas.ports.engines import LocalFile
from schemas.ports.ledger import OrderingPolicy
from schemas.ports.stage_ports import LatestRevision, StagePorts
from schemas.topics import RAW
from schemas.urls import redact_urls
from schemas.values import MAX_NAME_BYTES, Amendment, BlobRef, DocumentFields, Origin
from streams.stage import Emission, PendingEvent, Stage, build_memo_key, memoize

VERSION = 1
AMENDMENT_STEP = 2**62
"""Orders an amendment without a number after every correction of the last number, and before a
withdrawal.
"""


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    return [await _admit(pending_event.event, ports) for pending_event in pending_events]


async def _admit(event: Event[IngressData], ports: StagePorts) -> Emission:
    external_id_bytes = len((event.data.external_id or "").encode())
    if external_id_bytes > MAX_NAME_BYTES:
        raise MalformedEvent(
            f"external_id has {external_id_bytes} bytes; the limit is {MAX_NAME_BYTES} bytes."
        )
    check_producer(event, ports)
    if isinstance(event.data, DocumentReceived):
        return Emission(event, await _accept_document(event, event.data, ports))
    data = event.data
    ordered_event, common_fields, latest = await _resolve_target(event, data, ports)
    accepted: DocumentRemoved | AmendmentAccepted
    if isinstance(data, DocumentWithdrawn):
        order = _order_after_latest(ordered_event, latest, [1], ports)
        accepted = DocumentRemoved(**common_fields, order=order, reason=data.reason)
    else:
        suffix = [0, AMENDMENT_STEP, *_resolve_order(ordered_event, ports)]
        order = _order_after_latest(ordered_event, latest, suffix, ports)
        amended_fields = data.model_dump(include=set(Amendment.model_fields))
        accepted = AmendmentAccepted(**common_fields, order=order, **amended_fields)
    await admit_change(event, accepted, ports)
    return Emission(event, accepted)


async def _accept_document(
    event: Event[IngressData], data: DocumentReceived, ports: StagePorts
) -> DocumentAccepted:
    check_url_credentials("content.url", data.content.url)
    check_url_credentials("source_uri", data.source_uri)
    # Before any bytes are fetched, unless the id derives from their hash.
    if (document_id := resolve_document(event)) is not None:
        await check_owner(event, document_id, ports)
    blob, filename = await pin_bytes(event, data, ports)
    # Inline text without a file name is Markdown.
    text_type = "text/markdown" if data.content.text is not None and filename is None else None
    declared_type = data.media_type or blob.media_type or text_type
    # Type, page and archive limits are enforced before the document costs more.
    async with ports.blobs.open_local(blob.key) as path:
        file = LocalFile(path, filename, declared_type, blob.size, data.title, data.language)
        plan = await ports.parser.plan(file)
    fields = data.model_dump(include=set(DocumentFields.model_fields))
    accepted = DocumentAccepted.model_validate(
        fields
        | {
            "tenant": data.tenant,
            "document_id": require_document_id(event, data, blob.sha256),
            "order": _resolve_order(event, ports),
            "origin": _make_origin(event, data.external_id),
            "external_id": data.external_id,
            "filename": filename,
            "media_type": plan.media_type,
            "source_uri": redact_urls(uri)
            if (uri := data.source_uri or data.content.url)
            else None,
            # With the declared character set, which the bytes alone do not tell.
            "blob": blob.model_copy(
                update={"media_type": copy_charset(declared_type, plan.media_type)}
            ),
            # A recovery restores the inbox of ingress from this hash, which detects a reused
            # `ce_id`.
            "payload_sha256": event.payload_sha256,
            "received_at": _get_received_at(event),
            "numbered": bool(get_numbering_source(event)),
            "force": data.force,
            "limited_to": data.limited_to,
        }
    )
    # After every other check, so that a rejected event does not acquire ownership.
    await take_ownership(event, accepted, ports)
    return accepted


async def _resolve_target(
    event: Event[IngressData], data: DocumentAmended | DocumentWithdrawn, ports: StagePorts
) -> tuple[Event[IngressData], dict[str, Any], LatestRevision | None]:
    """Return the event, the common fields of the accepted event, and the document's newest
    revision.
    """
    document_id = resolve_document(event)
    if document_id is None:
        raise MalformedEvent(f"document_id {data.document_id!r} is not a UUID.")
    latest = await ports.latest_revisions.fetch_latest(data.tenant, document_id)
    if latest is None and data.external_id is None:
        # Transient, since the document may be accepted but not projected yet.
        raise TransientError(
            f"Tenant {data.tenant!r} has no document {document_id}.",
            code=NotFound.code,
            remedy="List documents with GET /v1/documents.",
        )
    await check_owner(event, document_id, ports)
    # The revisions are ordered by position, and a number does not compare with positions.
    if latest is not None and not latest.is_numbered and data.external_id is None:
        event = replace(event, sequence=None, epoch=None, step=0)
    external_id = data.external_id or (latest.external_id if latest else None)
    common_fields = {
        "tenant": data.tenant,
        "document_id": document_id,
        "origin": _make_origin(event, external_id),
        "external_id": external_id,
        "payload_sha256": event.payload_sha256,
        "received_at": _get_received_at(event),
        "numbered": event.sequence is not None or bool(latest and latest.is_numbered),
        "limited_to": data.limited_to,
    }
    return event, common_fields, latest


def _order_after_latest(
    event: Event[IngressData], latest: LatestRevision | None, suffix: list[int], ports: StagePorts
) -> list[int]:
    """Return the order of an event that changes an existing document.

    An event without a number, for a document whose source numbers its changes, is ordered after the
    latest revision.
    """
    if (
        event.sequence is None
        and latest is not None
        and latest.is_numbered
        and latest.order is not None
    ):
        # The suffix decides within one number: a withdrawal (1) sorts after corrections and
        # amendments (0).
        return [*latest.order[:2], *suffix]
    return _resolve_order(event, ports)


def _resolve_order(event: Event[IngressData], ports: StagePorts) -> list[int]:
    if event.sequence is not None:
        epoch = event.epoch if event.epoch is not None else ports.source_epochs.get(event.source, 1)
        # The third number is 0, below the 1 of a withdrawal. The fourth is `ce_sequencestep`.
        return [epoch, event.sequence, 0, *([event.step] if event.step else [])]
    assert event.position is not None and event.appended_at is not None
    return ports.assign_order(event.position, event.appended_at)


def _make_origin(event: Event[IngressData], external_id: str | None) -> Origin:
    # `accepted_id` fixes the ids of this revision's outcomes, whichever stage publishes them.
    return Origin(
        accepted_id=event.id, event_id=event.event_id, source=event.source, external_id=external_id
    )


def _get_received_at(event: Event[IngressData]) -> datetime:
    # Never the clock: a retry has to publish the same event.
    return event.appended_at or datetime.fromtimestamp(0, UTC)


def resolve_document(event: Event[IngressData]) -> UUID | None:
    return event.data.resolve_document_id(get_numbering_source(event))


def get_host(event: Event[IngressData]) -> str | None:
    """Return the server that the document is fetched from."""
    url = event.data.content.url if isinstance(event.data, DocumentReceived) else None
    try:
        return urlsplit(url).netloc.lower() if url is not None else None
    except ValueError:
        return None  # an invalid URL is rejected without a request


async def pin_bytes(
    event: Event[IngressData], data: DocumentReceived, ports: StagePorts
) -> tuple[BlobRef, str | None]:
    """Store the document's bytes under its own key. Return their reference and the filename.

    Raises PermanentError if the content is not admitted.
    """
    incoming, filename = await _store_incoming(event, data, ports)
    check_size(incoming.size, ports.limits.max_bytes)
    # Inline bytes are stored under this key at once.
    if incoming.key != (key := _make_pinned_key(event, data, incoming.sha256)):
        await _pin(incoming, key, event, data.tenant, ports)
    return incoming.model_copy(update={"key": key}), filename


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
            f"Inline content of {len(payload)} bytes exceeds the limit of "
            f"{ports.limits.inline_bytes}.",
            code="INLINE_TOO_LARGE",
            remedy=(
                "Upload the file and send its storage_key, send a url, or raise "
                "ANABRANCH_INGEST__INLINE_BYTES."
            ),
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
        # The API stages an upload under its hash.
        return await _inspect_blob(_make_pinned_key(event, data, key.rpartition("/")[2]), ports)


async def _inspect_blob(key: str, ports: StagePorts) -> BlobRef:
    size = await ports.blobs.get_size(key)
    if size is None:
        raise missing_blob_error(key)
    check_size(size, ports.limits.max_bytes)
    try:
        async with ports.blobs.open_local(key) as path:
            digest = await compute_file_sha256(path)
    # Deleted since `get_size`.
    except NotFound as error:
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
            # The JSON has no raw newline, so the first one separates it from the file name.
            b"\n".join(
                [
                    fetched_file.blob.model_dump_json().encode(),
                    (fetched_file.filename or "").encode(),
                ]
            )
        ]

    # The event's id stands in for the document's, which may derive from the bytes.
    key = build_memo_key(data.tenant, event.id, "fetch", f"{event.id} {url}".encode())
    cached_result = (await memoize(ports.memo, [key], fetch))[0]
    blob, _, name = cached_result.partition(b"\n")
    return BlobRef.model_validate_json(blob), data.filename or name.decode() or None


async def _pin(
    incoming: BlobRef, key: str, event: Event[IngressData], tenant: str, ports: StagePorts
) -> None:
    # The key contains the hash, so a blob of the same size is a finished copy.
    try:
        # Staged for this event alone. Uploads that a producer manages itself stay.
        if incoming.key.startswith(
            (upload_staging_prefix(tenant, event.id), fetch_staging_prefix(tenant, event.id))
        ):
            await ports.blobs.move(incoming.key, key)
        elif await ports.blobs.get_size(key) != incoming.size:
            await ports.blobs.copy(incoming.key, key)
    except NotFound:
        # Another attempt at this event has pinned the bytes and deleted the staged ones.
        if await ports.blobs.get_size(key) != incoming.size:
            raise


STAGE = Stage(
    "receive",
    RAW,
    VERSION,
    ordering_policy=OrderingPolicy.ONCE_PER_ID,
    react=react,
    emits=(DocumentAccepted, AmendmentAccepted, DocumentRemoved),
    batch_size=1,
    serves_all_generations=True,
    resolve_document=resolve_document,
    is_ordered=True,
    resolve_host=get_host,
)
