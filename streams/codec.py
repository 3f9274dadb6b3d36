"""Conversion between events and records: versions, encryption and signatures.

The payloads of events about a document or a run are encrypted with its key. The attributes that
routing and erasure need are clear headers.
"""

from __future__ import annotations

import base64
import json
import re
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cachetools import LRUCache
from pydantic import ValidationError

from schemas.errors import MalformedEvent, NewerVersion, PermanentError, format_invalid_fields
from schemas.events import Event, EventData, list_event_classes
from schemas.events.envelope import FOREIGN_BLOB
from schemas.ids import canonical_json, make_received_id, sha256_hex
from schemas.ports.keys import TAMPERED, PayloadCipher
from schemas.topics import OUTCOMES, RAW, Record, StoredRecord, get_base_topic
from streams.cloudevents import (
    SIGNATURE_HEADER,
    EventSigner,
    format_headers,
    parse_integer,
    parse_json,
    parse_record,
    parse_time,
    parse_uuid,
    parse_uuid_or_none,
)
from streams.payload_keys import PlainKeys

_CORRELATION_PATTERNS = {
    "correlationid": re.compile("|[0-9a-fA-F-]{36}"),
    "traceparent": re.compile("|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"),
}
"""Propagated attributes that may stay in clear headers: UUID and W3C Trace Context hold no text."""
SEALED_IDS_ATTRIBUTE = "sealedids"
"""Attribute with the encrypted values of those in any other format."""
_EVENT_TYPE_PATTERN = re.compile(r"^(?P<name>[a-z_]+(?:\.[a-z_]+)+)\.v(?P<version>\d+)$")


SEALED_CONTENT_TYPE = "application/octet-stream"
OWN_SOURCE_PREFIX = "anabranch/"
"""Prefix of `ce_source` in our own events."""
DEFAULT_TENANT = "default"
_OWN_ENVELOPE = (
    "id",
    "source",
    "event_id",
    "time",
    "tenant",
    "document_id",
    "pipeline_fingerprint",
    "causation_id",
    "correlation_id",
    "traceparent",
)
"""Fields that the headers of our own events hold, besides the key."""
MAX_WRITTEN_BYTES = 8 * 1024 * 1024
"""Size of the records that a codec recognizes as written by itself."""
SUBJECT_FIELDS = ("run_id", "feedback_id", "fact_id", "entity_id", "question_id", "event_id")
"""Fields by whose first id an event without a document is sealed: its run, fact or entity; a dead
letter without a document has its own."""


@dataclass(frozen=True, slots=True)
class _WrittenRecord:
    """A record as it was encoded, and what decoding its headers would return.

    The payload is opened again with each reading, so that an erased one is not kept.
    """

    record: Record
    event_class: type[EventData]
    envelope: Mapping[str, Any]
    sealing_context: bytes | None

    @property
    def size_bytes(self) -> int:
        return self.record.size_bytes


class Codec:
    """Encodes and decodes events.

    Decoding raises MalformedEvent for unreadable records and NewerVersion for our own events of a
    newer version. Older versions are upcast to the newest. Without a `signer` nothing is signed and
    every record counts as our own.
    """

    def __init__(
        self,
        keys: PayloadCipher | None = None,
        event_classes: Sequence[type[EventData]] = list_event_classes(),
        signer: EventSigner | None = None,
    ) -> None:
        self.keys = keys or PlainKeys()
        self.signer = signer
        self.event_classes: dict[tuple[str, str], tuple[type[EventData], int]] = {
            (event_class.topic, f"{event_class.name}.v{version}"): (event_class, version)
            for event_class in event_classes
            # Stored events are never rewritten, so every older version must stay readable.
            for version in range(1, event_class.version + 1)
        }
        self.newest_versions: dict[tuple[str, str], int] = {
            (event_class.topic, event_class.name): event_class.version
            for event_class in event_classes
        }
        # A stage mostly reads what another one of its process has just written.
        self._written_records: LRUCache[str, _WrittenRecord] = LRUCache(
            MAX_WRITTEN_BYTES, getsizeof=lambda written: written.size_bytes
        )

    async def encode(self, event: Event[Any], topic: str, key: str) -> Record:
        # Nulls are left out, except on `outcomes`, which other programs read.
        payload = event.data.model_dump_json(exclude_none=event.data.topic != OUTCOMES).encode()
        headers = format_headers(event)
        ids = (getattr(event.data, name, None) for name in SUBJECT_FIELDS)
        subject = event.document_id or next(filter(None, ids), None)
        tenant = event.tenant or getattr(event.data, "tenant", None)
        is_sealed = event.data.is_sealed
        key_id: UUID | None = None
        context = b""
        # Only a dead letter may have no tenant: its record named none, and no key is for it.
        has_owner = tenant is not None or hasattr(event.data, "tenant")
        if is_sealed and (subject is None or not has_owner):
            raise ValueError(
                f"{event.data.event_type()} is sealed on topic {topic}, but names no tenant and "
                "document to encrypt it for. Set them in the envelope, or list the field with the "
                "id of its subject in SUBJECT_FIELDS of streams/codec.py."
            )
        if is_sealed and subject is not None and tenant is not None:
            context = _build_sealing_context(
                event.event_id, event.data.event_type(), event.tenant, topic
            )
            sealed = await self.keys.seal(tenant, subject, payload, context=context, key=event.key)
            # None: this tenant's events are stored unencrypted.
            if sealed is not None:
                key_id, payload = sealed
                headers |= {
                    "ce_keyid": str(key_id).encode(),
                    "content-type": SEALED_CONTENT_TYPE.encode(),
                }
                headers |= await self._seal_correlation_ids(
                    headers, tenant, subject, key_id, event, topic
                )
        if self.signer is not None:
            # Last: the signature covers the sealed payload and all attributes.
            headers[SIGNATURE_HEADER] = self.signer.sign(topic, payload, headers)
        record = Record(topic, key.encode(), payload, headers)
        if event.data.topic != RAW:
            envelope = {name: getattr(event, name) for name in _OWN_ENVELOPE} | {"key": key_id}
            self._written_records[event.event_id] = _WrittenRecord(
                record, type(event.data), envelope, context if key_id else None
            )
        return record

    async def _seal_correlation_ids(
        self,
        headers: dict[str, bytes],
        tenant: str,
        subject: UUID,
        key: UUID,
        event: Event[Any],
        topic: str,
    ) -> dict[str, bytes]:
        """Remove propagated attributes that may contain text from `headers` and return them
        encrypted.
        """
        correlation_ids = {
            # Free text from a producer may be personal data, which an erasure must reach.
            name: headers.pop(f"ce_{name}").decode()
            for name, pattern in _CORRELATION_PATTERNS.items()
            if not pattern.fullmatch(headers.get(f"ce_{name}", b"").decode())
        }
        if not correlation_ids:
            return {}
        sealed = await self.keys.seal(
            tenant,
            subject,
            json.dumps(correlation_ids).encode(),
            context=_build_sealing_context(
                event.event_id, SEALED_IDS_ATTRIBUTE, event.tenant, topic
            ),
            key=key,
        )
        assert sealed is not None, "a key that sealed the payload seals this too"
        return {f"ce_{SEALED_IDS_ATTRIBUTE}": base64.b64encode(sealed[1])}

    async def prefetch_keys(self, records: Sequence[StoredRecord]) -> None:
        """Fetch the keys of all records in one call."""
        key_ids = (
            stored_record.record.headers.get("ce_keyid", b"").decode(errors="replace")
            for stored_record in records
        )
        await self.keys.prefetch(
            {key for key_id in key_ids if (key := parse_uuid_or_none(key_id)) is not None}
        )

    def is_own_record(self, stored_record: StoredRecord) -> bool:
        """Return whether a process with the master key wrote the record."""
        return self.signer is None or self.signer.verify(stored_record)

    async def decode(self, stored_record: StoredRecord) -> Event[Any]:
        """Decode a record.

        Raises PermanentError with code UNSIGNED_EVENT for foreign records behind ingress.
        """
        if (written := self._find_written(stored_record)) is not None:
            return await self._decode_written(written, stored_record)
        topic = get_base_topic(stored_record.position.topic)
        # Before the version is looked at: a forged newer version would otherwise pause the
        # partition.
        if topic != RAW and self.signer is not None:
            self.signer.check(stored_record)
        attributes, payload = parse_record(stored_record.record)
        event_class, version = self._resolve_event_class(topic, attributes)
        # Without a key id: events of tenants without encryption, and those that an earlier version
        # did not seal.
        if event_class.is_sealed and "keyid" in attributes:
            payload = await self._open_payload(
                attributes, payload, attributes["type"], stored_record.position.topic
            )
            if SEALED_IDS_ATTRIBUTE in attributes:
                sealed_ids = base64.b64decode(attributes[SEALED_IDS_ATTRIBUTE])
                opened = await self._open_payload(
                    attributes, sealed_ids, SEALED_IDS_ATTRIBUTE, stored_record.position.topic
                )
                attributes |= json.loads(opened)
        # A byte order mark, which some producers write, is no part of the JSON.
        payload = payload.removeprefix(BOM_UTF8)
        data = _parse_data(event_class, version, payload)
        if topic != RAW:
            return _build_own_event(attributes, data, stored_record)
        is_ours = attributes["source"].startswith(OWN_SOURCE_PREFIX)
        return _build_foreign_event(
            attributes, data, payload, stored_record, is_ours and self.is_own_record(stored_record)
        )

    def _find_written(self, stored_record: StoredRecord) -> _WrittenRecord | None:
        """Return the record as this codec wrote it, unless a byte of it has changed."""
        record = stored_record.record
        written = self._written_records.get(
            record.headers.get("ce_id", b"").decode(errors="replace")
        )
        return (
            written
            if written is not None
            and written.record.topic == stored_record.position.topic
            and written.record.value == record.value
            and written.record.headers == record.headers
            else None
        )

    async def _decode_written(
        self, written: _WrittenRecord, stored_record: StoredRecord
    ) -> Event[Any]:
        payload = written.record.value or b""
        if written.sealing_context is not None:
            payload = await self.keys.open(
                written.envelope["key"], payload, context=written.sealing_context
            )
        return Event(
            **written.envelope,
            data=_parse_data(written.event_class, written.event_class.version, payload),
            position=stored_record.position,
            appended_at=stored_record.appended_at,
        )

    async def _open_payload(
        self, attributes: Mapping[str, str], sealed: bytes, event_type: str, topic: str
    ) -> bytes:
        key, event_id = parse_uuid(attributes, "keyid"), attributes["id"]
        try:
            return await self.keys.open(
                key,
                sealed,
                context=_build_sealing_context(
                    event_id, event_type, attributes.get("tenant"), topic
                ),
            )
        except PermanentError as error:
            # Only a failed authentication may mean the older context; a missing key does not.
            if error.code != TAMPERED:
                raise
            # Older versions bound a payload to its event only. A newer payload does not open with
            # this context, so the fallback weakens nothing.
            return await self.keys.open(key, sealed, context=f"{event_id} {event_type}".encode())

    def _resolve_event_class(
        self, topic: str, attributes: Mapping[str, str]
    ) -> tuple[type[EventData], int]:
        """Return the class of an event and the version of the record."""
        event_type = attributes["type"]
        # By topic and type: several topics carry a type of the same name with other fields.
        if known_class := self.event_classes.get((topic, event_type)):
            return known_class
        match = _EVENT_TYPE_PATTERN.match(event_type)
        newest_version = self.newest_versions.get((topic, match["name"]), 0) if match else 0
        # An unknown type from our own source is from a newer program; from any other source it is
        # an error.
        if (
            topic != RAW
            and match
            and int(match["version"]) > newest_version
            and (newest_version or attributes["source"].startswith(OWN_SOURCE_PREFIX))
        ):
            raise NewerVersion(
                f"This worker does not support {event_type} on topic "
                f"{topic}{f'; its newest version is v{newest_version}' if newest_version else ''}."
            )
        if newest_version:
            raise MalformedEvent(
                f"Unknown version {event_type}. The newest is v{newest_version}.",
                code="UNKNOWN_VERSION",
            )
        known_types = ", ".join(
            sorted(type_name for type_topic, type_name in self.event_classes if type_topic == topic)
        )
        raise MalformedEvent(
            f"Unknown event type {event_type!r} on topic {topic}. Known types: {known_types}.",
            code="UNKNOWN_TYPE",
        )


def _parse_data(event_class: type[EventData], version: int, payload: bytes) -> EventData:
    """Convert a payload of any version to the newest. Raises MalformedEvent if it is invalid."""
    if version != event_class.version:
        older_payload = parse_json(payload, "The payload")
        try:
            payload = json.dumps(event_class.upcast_payload(older_payload, version)).encode()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedEvent(
                f"Invalid payload of {event_class.name}.v{version}: {error!r}."
            ) from error
    try:
        return event_class.model_validate_json(payload)
    except ValidationError as error:
        problems = error.errors(include_input=False)
        is_foreign_blob = any(problem["type"] == FOREIGN_BLOB for problem in problems)
        raise MalformedEvent(
            f"Invalid payload of {event_class.event_type()}: "
            f"{format_invalid_fields(problems[:5], 'payload')}.",
            code="FOREIGN_BLOB" if is_foreign_blob else None,
        ) from error


def _build_foreign_event(
    attributes: Mapping[str, str],
    data: EventData,
    payload: bytes,
    stored_record: StoredRecord,
    is_ours: bool,
) -> Event[Any]:
    tenant = str(getattr(data, "tenant", DEFAULT_TENANT))
    source, event_id = attributes["source"], attributes["id"]
    return Event(
        # Producers choose their ids freely; ours is unique across tenants and sources.
        id=make_received_id(tenant, source, event_id),
        data=data,
        source=source,
        event_id=event_id,
        time=parse_time(attributes),
        tenant=tenant,
        correlation_id=attributes.get("correlationid"),
        traceparent=attributes.get("traceparent"),
        sequence=parse_integer(attributes, "sequence"),
        epoch=parse_integer(attributes, "sequenceepoch"),
        step=parse_integer(attributes, "sequencestep") or 0,
        payload_sha256=sha256_hex(
            # Canonical JSON: a repeated event with other spacing still has the same hash.
            attributes["type"].encode() + b"\n" + canonical_json(parse_json(payload, "The payload"))
        ),
        position=stored_record.position,
        appended_at=stored_record.appended_at,
        is_ours=is_ours,
    )


def _build_own_event(
    attributes: Mapping[str, str], data: EventData, stored_record: StoredRecord
) -> Event[Any]:
    causation_id, document, key_id = (
        parse_uuid(attributes, name) if name in attributes else None
        for name in ("causationid", "document", "keyid")
    )
    return Event(
        id=parse_uuid(attributes, "id"),
        data=data,
        source=attributes["source"],
        event_id=attributes["id"],
        time=parse_time(attributes),
        tenant=attributes.get("tenant"),
        document_id=document,
        pipeline_fingerprint=attributes.get("how"),
        causation_id=causation_id,
        correlation_id=attributes.get("correlationid"),
        traceparent=attributes.get("traceparent"),
        key=key_id,
        position=stored_record.position,
        appended_at=stored_record.appended_at,
    )


def _build_sealing_context(event_id: str, event_type: str, tenant: str | None, topic: str) -> bytes:
    """Build the associated data of a sealed payload, so that it opens in no other event, tenant or
    topic.
    """
    return json.dumps([event_id, event_type, tenant, topic]).encode()
