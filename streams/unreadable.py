"""Attributes of records that are not decoded: unreadable ones, and sealed ones of other tenants."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from schemas.ids import make_document_id
from schemas.principals import is_valid_tenant
from schemas.records import Record, StoredRecord
from schemas.topics import RAW, get_base_topic
from streams.cloudevents import (
    MAX_ATTRIBUTE_BYTES,
    STRUCTURED_CONTENT_TYPE,
    get_content_type,
    parse_uuid_or_none,
    replace_surrogates,
)
from streams.codec import DEFAULT_TENANT


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
