"""The door. Foreign producers choose their own keys, partitioners and bytes; behind this stage everything is reproducible.

Validates, fetches a URL once, pins the bytes as a blob, gives the document its id and its place among its revisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from processors.admission import check_owner, check_producer, take_ownership
from processors.pinning import Incoming, identity_of, numbered, pinned_bytes
from schemas.errors import CredentialsInUrl, MalformedEvent, NotFound, TransientError
from schemas.events import AmendmentAccepted, DocumentAccepted, DocumentAmended, DocumentReceived, DocumentRemoved, DocumentWithdrawn, Fact
from schemas.ports.bundle import Latest, Ports
from schemas.ports.engines import File, ParsePlan
from schemas.urls import has_user_info, redact_urls
from schemas.values import MAX_NAME_BYTES, Amendment, BlobRef, DocumentFields, Origin
from streams.stage import Counted, Stage, Statement
from streams.topics import RAW

VERSION = 1
AMENDED = 2**62
"""In the order of an amendment without a number: behind every correction of the last number, and before a withdrawal."""


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    return [await _pass_on(item.fact, ports) for item in counted]


async def _pass_on(fact: Fact[Incoming], ports: Ports) -> Statement:
    _check_name(fact)
    check_producer(fact, ports)
    if isinstance(fact.data, DocumentWithdrawn):
        return Statement(fact, await _removed(fact, fact.data, ports))
    if isinstance(fact.data, DocumentAmended):
        return Statement(fact, await _amended(fact, fact.data, ports))
    return Statement(fact, await _accepted(fact, fact.data, ports))


def _check_name(fact: Fact[Incoming]) -> None:
    name = fact.data.external_id or ""
    if len(name.encode()) > MAX_NAME_BYTES:
        raise MalformedEvent(f"external_id has {len(name.encode())} bytes; {MAX_NAME_BYTES} are allowed")


async def _accepted(fact: Fact[Incoming], data: DocumentReceived, ports: Ports) -> DocumentAccepted:
    for name, url in (("content.url", data.content.url), ("source_uri", data.source_uri)):
        if url is not None and has_user_info(url):
            raise CredentialsInUrl(f"{name} holds a user name or password")
    if (named := data.document(numbered(fact))) is not None:
        await check_owner(fact, named, ports)
    blob, filename = await pinned_bytes(fact, data, ports)
    plan = await _looked_at(blob, data, filename, ports)
    # The last that may refuse it: what is not accepted owns nothing.
    await take_ownership(fact, identity_of(fact, data, blob.sha256), ports)
    fields = data.model_dump(include=set(DocumentFields.model_fields))
    return DocumentAccepted.model_validate(
        fields
        | {
            "tenant": data.tenant,
            "document_id": identity_of(fact, data, blob.sha256),
            "order": _order(fact, ports),
            "origin": _origin(fact, data.external_id),
            "external_id": data.external_id,
            "filename": filename,
            "media_type": plan.media_type,
            "source_uri": redact_urls(uri) if (uri := data.source_uri or data.content.url) else None,
            "blob": blob.model_copy(update={"media_type": plan.media_type}),
            "payload_sha256": fact.payload_sha256,
            "received_at": _moment(fact),
            "numbered": bool(numbered(fact)),
            "force": data.force,
        }
    )


async def _removed(fact: Fact[Incoming], data: DocumentWithdrawn, ports: Ports) -> DocumentRemoved:
    fact, known, latest = await _known(fact, data, ports)
    return DocumentRemoved(**known, order=_after_numbers(fact, latest, [1], ports), reason=data.reason)


async def _amended(fact: Fact[Incoming], data: DocumentAmended, ports: Ports) -> AmendmentAccepted:
    fact, known, latest = await _known(fact, data, ports)
    order = _after_numbers(fact, latest, [0, AMENDED, *_order(fact, ports)], ports)
    return AmendmentAccepted(**known, order=order, **data.model_dump(include=set(Amendment.model_fields)))


async def _known(fact: Fact[Incoming], data: DocumentAmended | DocumentWithdrawn, ports: Ports) -> tuple[Fact[Incoming], dict[str, Any], Latest | None]:
    """The event, which document it speaks of, and its newest revision. Of a document without numbers the event has none either: it would stand before or behind
    all that comes without."""
    identity = data.document(numbered(fact))
    if identity is None:
        raise MalformedEvent(f"document_id {data.document_id!r} is not a UUID")
    latest = await ports.revisions.latest(data.tenant, identity)
    if latest is None and data.external_id is None:
        # Its acceptance may still be on its way to the table.
        raise TransientError(f"tenant {data.tenant!r} has no document {identity}", code=NotFound.code, remedy="GET /v1/documents lists them.")
    await check_owner(fact, identity, ports)
    if latest is not None and not latest.numbered and data.external_id is None:
        fact = replace(fact, sequence=None, epoch=None, step=0)
    external_id = data.external_id or (latest.external_id if latest else None)
    known = {
        "tenant": data.tenant,
        "document_id": identity,
        "origin": _origin(fact, external_id),
        "external_id": external_id,
        "payload_sha256": fact.payload_sha256,
        "received_at": _moment(fact),
        "numbered": fact.sequence is not None or bool(latest and latest.numbered),
    }
    return fact, known, latest


def _after_numbers(fact: Fact[Incoming], latest: Latest | None, place: list[int], ports: Ports) -> list[int]:
    """Without a number, of a document whose source gives numbers: right after the last one."""
    if fact.sequence is None and latest is not None and latest.numbered and latest.order is not None:
        return [*latest.order[:2], *place]
    return _order(fact, ports)


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


def _type_of_text(data: DocumentReceived, filename: str | None) -> str | None:
    """Text in an event is Markdown unless its name says otherwise."""
    return "text/markdown" if data.content.text is not None and filename is None else None


async def _looked_at(blob: BlobRef, data: DocumentReceived, filename: str | None, ports: Ports) -> ParsePlan:
    """Type, page and archive limits, before anything else is spent on the document."""
    async with ports.blobs.local(blob.key) as path:
        return await ports.parser.plan(File(path, filename, data.media_type or _type_of_text(data, filename), blob.size, data.title, data.language))


def host(fact: Fact[Incoming]) -> str | None:
    """The server that the document is fetched from."""
    url = fact.data.content.url if isinstance(fact.data, DocumentReceived) else None
    try:
        return urlsplit(url).netloc.lower() if url is not None else None
    except ValueError:
        return None  # not a URL: refused without a fetch


STAGE = Stage("receive", RAW, VERSION, counts="door", react=react, batch=1, shared=True, host=host)
