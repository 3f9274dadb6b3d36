"""Dead letters: events that could not be processed, with the reason, and the outcome for the
producer.

Nothing is lost: the record stays at its log position. Records of `raw`, which expires, are copied
into a blob. The attributes of a record that is not decoded, since it is unreadable or sealed for
another tenant, are read from its headers.
"""

from __future__ import annotations

import json
import traceback
from base64 import b64encode
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemas.errors import AnabranchError
from schemas.events import (
    DocumentAmended,
    DocumentFailed,
    DocumentReceived,
    DocumentWithdrawn,
    Event,
    EventDeadLettered,
)
from schemas.events.dead_letters import LogPosition
from schemas.ids import content_id, make_document_id
from schemas.ports.stage_ports import StagePorts
from schemas.principals import is_valid_tenant
from schemas.topics import RAW, Record, StoredRecord, get_base_topic
from schemas.urls import redact_urls
from schemas.values import DocumentSummary
from streams.cloudevents import (
    MAX_ATTRIBUTE_BYTES,
    STRUCTURED_CONTENT_TYPE,
    get_content_type,
    parse_uuid_or_none,
    replace_surrogates,
)
from streams.codec import DEFAULT_TENANT
from streams.stage import Emission, Stage


def guess_producer_attributes(record: Record) -> tuple[str | None, str | None, str | None]:
    """Guess the producer's event id, its source and the event type of an unreadable record."""
    attributes = {
        name[3:]: value.decode(errors="replace")
        for name, value in record.headers.items()
        if name.startswith("ce_")
    }
    if get_content_type(record) == STRUCTURED_CONTENT_TYPE:
        attributes |= {
            name: value
            for name, value in _guess_payload(record.value or b"").items()
            if isinstance(value, str)
        }
    event_id, source, event_type = (
        value and _truncate(value) for value in map(attributes.get, ("id", "source", "type"))
    )
    return event_id, source, event_type


def guess_text(record: Record, name: str) -> str | None:
    """Guess a text field of an unreadable record, truncated to the limit of attributes."""
    text = _guess_field(record, name)
    return text and _truncate(text)


def guess_document_id(stored_record: StoredRecord, tenant: str) -> UUID | None:
    """Guess the document of an unreadable record, or return None."""
    # Behind ingress the document is a clear header, also of a sealed event.
    if get_base_topic(stored_record.position.topic) != RAW:
        return parse_uuid_or_none(
            (stored_record.record.headers.get("ce_document") or b"").decode(errors="replace")
        )
    item_name = _guess_field(stored_record.record, "external_id") or _guess_field(
        stored_record.record, "source_uri"
    )
    # Without an item name only amendments and withdrawals name their document, by its id.
    if not item_name:
        return parse_uuid_or_none(_guess_field(stored_record.record, "document_id") or "")
    return make_document_id(
        tenant,
        (guess_producer_attributes(stored_record.record)[1] or "")
        # Numbered events belong to a source, which is then part of the document's id.
        if "ce_sequence" in stored_record.record.headers
        else "",
        replace_surrogates(item_name),
    )


def resolve_tenant(stored_record: StoredRecord) -> str | None:
    """Return the tenant of a record without decrypting it; None for records without one
    (decisions).
    """
    # On `raw` the payload names the tenant. Never None there: its key seals the dead letter.
    if get_base_topic(stored_record.position.topic) == RAW:
        tenant = replace_surrogates(_guess_field(stored_record.record, "tenant") or DEFAULT_TENANT)
        return tenant if is_valid_tenant(tenant) else DEFAULT_TENANT
    tenant = stored_record.record.headers.get("ce_tenant", b"").decode(errors="replace")
    return tenant if is_valid_tenant(tenant) else None


def _guess_field(record: Record, name: str) -> str | None:
    payload = _guess_payload(record.value or b"")
    data = payload.get("data", payload)
    value = data.get(name) if isinstance(data, dict) else None
    return value if isinstance(value, str) else None


def _truncate(text: str) -> str:
    # Cut in bytes, the limit of an index entry; "ignore" drops a split last character.
    return text.encode(errors="replace")[:MAX_ATTRIBUTE_BYTES].decode(errors="ignore")


def _guess_payload(value: bytes) -> dict[str, Any]:
    try:
        payload = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


MAX_DETAIL_CHARS = 2000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter to be published, with its record and, if it could be decoded, its event."""

    stored_record: StoredRecord
    event: Event[Any] | None
    data: EventDeadLettered

    @classmethod
    def from_error(
        cls,
        stored_record: StoredRecord,
        event: Event[Any] | None,
        stage: Stage,
        generation: str | None,
        error: Exception,
        attempts: int,
    ) -> DeadLetter:
        code, detail, remedy, traceback_text = describe_error(error)
        position = stored_record.position
        if event is None:
            # From clear fields only: nothing can be decrypted.
            event_id = content_id("unreadable", position.topic, position.partition, position.offset)
            producer_event_id, producer_source, event_type = guess_producer_attributes(
                stored_record.record
            )
            tenant = resolve_tenant(stored_record)
            document_id = guess_document_id(stored_record, tenant) if tenant is not None else None
        else:
            # Not a duplicate's own id, under which the first event was processed.
            event_id = (
                content_id("duplicate", event.id, event.payload_sha256)
                if code == "DUPLICATE_ID"
                else event.id
            )
            origin = getattr(event.data, "origin", None) or event
            producer_event_id, producer_source = origin.event_id, origin.source
            event_type, tenant = event.data.event_type(), event.tenant
            document_id = event.document_id
            if isinstance(event.data, DocumentReceived | DocumentAmended | DocumentWithdrawn):
                # Ingress rejected it, so the envelope names no document yet.
                document_id = event.data.resolve_document_id(
                    event.source if event.sequence is not None else ""
                )
        data = EventDeadLettered(
            stage=stage.name,
            generation=generation,
            event_id=event_id,
            original_type=event_type,
            tenant=tenant,
            document_id=document_id,
            position=LogPosition(
                topic=position.topic, partition=position.partition, offset=position.offset
            ),
            code=code,
            detail=detail[:MAX_DETAIL_CHARS] + (" …" if len(detail) > MAX_DETAIL_CHARS else ""),
            remedy=remedy,
            traceback=traceback_text,
            attempts=attempts,
            producer_event_id=producer_event_id,
            producer_source=producer_source,
            document_summary=_extract_received_fields(stored_record, event),
        )
        return cls(stored_record, event, data)


def describe_error(error: Exception) -> tuple[str, str, str, str | None]:
    """Return code, detail and remedy of an error, and its traceback if it is a defect of the
    program.
    """
    match error:
        case AnabranchError():
            return error.code, error.detail, error.remedy, None
        case TimeoutError():
            return (
                "DEADLINE_EXCEEDED",
                "The reaction did not end within its deadline.",
                "Redrive it when the machine is less busy, or split the document.",
                None,
            )
        case _:
            text = "".join(traceback.format_exception(error))
            return (
                "BUG",
                # str() of an OSError contains a path of this machine.
                f"{type(error).__name__}: "
                f"{error.strerror if isinstance(error, OSError) and error.strerror else error}",
                "This is a defect of the program. Report it with the traceback, and redrive the "
                "event after the fix.",
                # The end names the cause; an event must stay below `MAX_EVENT_BYTES`.
                text[-8000:],
            )


async def build_dead_letter_emissions(
    dead_letter: DeadLetter, stage: Stage, ports: StagePorts
) -> list[Emission]:
    """Build the emission of a dead letter and, if a document fails with it, of the outcome."""
    data = dead_letter.data
    # Records of `raw` expire, so the dead letter gets a copy.
    if get_base_topic(dead_letter.stored_record.position.topic) == RAW:
        value = dead_letter.stored_record.record.value or b""
        headers = {
            name: b64encode(header_value).decode()
            for name, header_value in dead_letter.stored_record.record.headers.items()
        }
        blob_fields = {
            # A fixed key: a retry writes the same blob again.
            "record": await ports.blobs.put(f"_dead_letters/{data.event_id}", value),
            "headers": await ports.blobs.put(
                f"_dead_letters/{data.event_id}.headers",
                json.dumps(headers).encode(),
                media_type="application/json",
            ),
        }
        data = data.model_copy(
            update={**blob_fields, "appended_at": dead_letter.stored_record.appended_at}
        )
    # Every emission needs a cause, also one of a record that could not be decoded.
    cause = dead_letter.event or Event(
        id=data.event_id,
        data=dead_letter.data,
        source="",
        event_id="",
        time=None,
        position=dead_letter.stored_record.position,
    )
    id_parts = (
        "dead_lettered",
        stage.name,
        data.generation or "",
        str(data.event_id),
        # A redrive that fails again is a new dead letter, which reopens the closed one.
        *([str(data.redriven)] if data.redriven else []),
    )
    emissions = [Emission(cause, data, id_parts=id_parts)]
    if stage.fails_document:
        origin = getattr(cause.data, "origin", None)
        # One outcome per revision, however many of its parts fail: hence an id without the part.
        outcome_id_parts = (
            ("outcome", DocumentFailed.name, str(origin.accepted_id))
            if origin
            else (*id_parts, "outcome")
        )
        emissions.append(Emission(cause, _build_outcome(dead_letter), id_parts=outcome_id_parts))
    return emissions


def _extract_received_fields(
    stored_record: StoredRecord, event: Event[Any] | None
) -> DocumentSummary | None:
    # Behind ingress the document's row has these fields.
    if get_base_topic(stored_record.position.topic) != RAW:
        return None
    fields: dict[str, Any] = {
        name: getattr(event.data, name, None) if event else guess_text(stored_record.record, name)
        for name in DocumentSummary.model_fields
    }
    fields["tags"] = list(fields["tags"] or ()) if event else []
    if event and isinstance(event.data, DocumentReceived):
        fields["source_uri"] = fields["source_uri"] or event.data.content.url
    fields["source_uri"] = redact_urls(fields["source_uri"]) if fields["source_uri"] else None
    return DocumentSummary(**fields) if any(fields.values()) else None


def _build_outcome(dead_letter: DeadLetter) -> DocumentFailed:
    letter_data = dead_letter.data
    event_data = dead_letter.event.data if dead_letter.event else None
    origin = getattr(event_data, "origin", None)
    return DocumentFailed(
        external_id=origin.external_id
        if origin
        else getattr(event_data, "external_id", None)
        or guess_text(dead_letter.stored_record.record, "external_id"),
        tenant=letter_data.tenant,
        document_id=letter_data.document_id if dead_letter.event else None,
        event_id=letter_data.producer_event_id,
        source=letter_data.producer_source,
        code=letter_data.code,
        detail=letter_data.detail,
        remedy=letter_data.remedy,
    )
