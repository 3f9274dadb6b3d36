"""Ingress: validate external events and admit them to `accepted`.

External producers choose their own keys, partitioners and bytes; everything after this stage is
reproducible. Fetches a URL once, pins the bytes as a blob, and assigns the document's id and the
order among its revisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from processors.admission import (
    IngressData,
    check_owner,
    check_producer,
    check_url_credentials,
    take_ownership,
)
from processors.pinning import get_numbering_source, pin_bytes, require_document_id
from schemas.errors import MalformedEvent, NotFound, TransientError
from schemas.events import (
    AmendmentAccepted,
    DocumentAccepted,
    DocumentAmended,
    DocumentReceived,
    DocumentRemoved,
    DocumentWithdrawn,
    Event,
)
from schemas.ports.engines import LocalFile, ParsePlan
from schemas.ports.stage_ports import LatestRevision, StagePorts
from schemas.topics import RAW
from schemas.urls import redact_urls
from schemas.values import MAX_NAME_BYTES, Amendment, BlobRef, DocumentFields, Origin
from streams.stage import Emission, PendingEvent, Stage

VERSION = 1
AMENDMENT_STEP = 2**62
"""Orders an amendment without a number after every correction of the last number, and before a
withdrawal.
"""


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    return [await _admit(pending_event.event, ports) for pending_event in pending_events]


async def _admit(event: Event[IngressData], ports: StagePorts) -> Emission:
    _check_external_id(event)
    check_producer(event, ports)
    if isinstance(event.data, DocumentWithdrawn):
        return Emission(event, await _accept_withdrawal(event, event.data, ports))
    if isinstance(event.data, DocumentAmended):
        return Emission(event, await _accept_amendment(event, event.data, ports))
    return Emission(event, await _accept_document(event, event.data, ports))


def _check_external_id(event: Event[IngressData]) -> None:
    external_id = event.data.external_id or ""
    if len(external_id.encode()) > MAX_NAME_BYTES:
        raise MalformedEvent(
            f"external_id has {len(external_id.encode())} bytes; the limit is {MAX_NAME_BYTES} bytes."
        )


async def _accept_document(
    event: Event[IngressData], data: DocumentReceived, ports: StagePorts
) -> DocumentAccepted:
    check_url_credentials("content.url", data.content.url)
    check_url_credentials("source_uri", data.source_uri)
    if (document_id := data.resolve_document_id(get_numbering_source(event))) is not None:
        await check_owner(event, document_id, ports)
    blob, filename = await pin_bytes(event, data, ports)
    plan = await _plan_parsing(blob, data, filename, ports)
    # After every other check, so that a rejected event does not acquire ownership.
    await take_ownership(event, require_document_id(event, data, blob.sha256), ports)
    fields = data.model_dump(include=set(DocumentFields.model_fields))
    return DocumentAccepted.model_validate(
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
            "blob": blob.model_copy(update={"media_type": plan.media_type}),
            "payload_sha256": event.payload_sha256,
            "received_at": _get_received_at(event),
            "numbered": bool(get_numbering_source(event)),
            "force": data.force,
        }
    )


async def _accept_withdrawal(
    event: Event[IngressData], data: DocumentWithdrawn, ports: StagePorts
) -> DocumentRemoved:
    event, common_fields, latest = await _resolve_target(event, data, ports)
    return DocumentRemoved(
        **common_fields, order=_order_after_latest(event, latest, [1], ports), reason=data.reason
    )


async def _accept_amendment(
    event: Event[IngressData], data: DocumentAmended, ports: StagePorts
) -> AmendmentAccepted:
    event, common_fields, latest = await _resolve_target(event, data, ports)
    order = _order_after_latest(
        event, latest, [0, AMENDMENT_STEP, *_resolve_order(event, ports)], ports
    )
    return AmendmentAccepted(
        **common_fields, order=order, **data.model_dump(include=set(Amendment.model_fields))
    )


async def _resolve_target(
    event: Event[IngressData], data: DocumentAmended | DocumentWithdrawn, ports: StagePorts
) -> tuple[Event[IngressData], dict[str, Any], LatestRevision | None]:
    """Return the event, the common fields of the accepted event, and the document's newest
    revision.
    """
    document_id = data.resolve_document_id(get_numbering_source(event))
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
        return [*latest.order[:2], *suffix]
    return _resolve_order(event, ports)


def _resolve_order(event: Event[IngressData], ports: StagePorts) -> list[int]:
    if event.sequence is not None:
        epoch = event.epoch if event.epoch is not None else ports.source_epochs.get(event.source, 1)
        return [epoch, event.sequence, 0, *([event.step] if event.step else [])]
    assert event.position is not None and event.appended_at is not None
    return ports.assign_order(event.position, event.appended_at)


def _make_origin(event: Event[IngressData], external_id: str | None) -> Origin:
    return Origin(
        accepted_id=event.id, event_id=event.event_id, source=event.source, external_id=external_id
    )


def _get_received_at(event: Event[IngressData]) -> datetime:
    return event.appended_at or datetime.fromtimestamp(0, UTC)


async def _plan_parsing(
    blob: BlobRef, data: DocumentReceived, filename: str | None, ports: StagePorts
) -> ParsePlan:
    """Inspect the bytes, to enforce type, page and archive limits before the document costs more."""
    # Inline text without a file name is Markdown.
    text_type = "text/markdown" if data.content.text is not None and filename is None else None
    async with ports.blobs.open_local(blob.key) as path:
        file = LocalFile(
            path, filename, data.media_type or text_type, blob.size, data.title, data.language
        )
        return await ports.parser.plan(file)


def get_host(event: Event[IngressData]) -> str | None:
    """Return the server that the document is fetched from."""
    url = event.data.content.url if isinstance(event.data, DocumentReceived) else None
    try:
        return urlsplit(url).netloc.lower() if url is not None else None
    except ValueError:
        return None  # an invalid URL is rejected without a request


STAGE = Stage(
    "receive",
    RAW,
    VERSION,
    ordering_policy="once_per_id",
    react=react,
    emits=(DocumentAccepted, AmendmentAccepted, DocumentRemoved),
    batch_size=1,
    serves_all_generations=True,
    resolve_host=get_host,
)
