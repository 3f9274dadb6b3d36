"""Conversion between events and records: CloudEvents 1.0, Kafka protocol binding.

Writes binary mode, reads binary and structured mode. The payloads of events about a document or a
run are encrypted with its key. The attributes that routing and erasure need are clear headers.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from schemas.errors import MalformedEvent, NewerVersion, PermanentError
from schemas.events import Event, EventData, list_event_classes
from schemas.events.envelope import FOREIGN_BLOB
from schemas.ids import canonical_json, make_received_id, sha256_hex
from schemas.ports.keys import TAMPERED, PayloadCipher
from schemas.records import Record, StoredRecord
from schemas.topics import OUTCOMES, RAW, get_base_topic
from streams.payload_keys import PlainKeys
from streams.signatures import SIGNATURE_HEADER, EventSigner

SPECVERSION = "1.0"
STRUCTURED_CONTENT_TYPE = "application/cloudevents+json"
MAX_ATTRIBUTE_BYTES = 1024
"""Size limit of propagated attributes: three of them must fit into one index entry of Postgres."""
_PROPAGATED_ATTRIBUTES = ("id", "source", "type", "correlationid", "traceparent")
_CORRELATION_PATTERNS = {
    "correlationid": re.compile("|[0-9a-fA-F-]{36}"),
    "traceparent": re.compile("|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"),
}
"""Propagated attributes that may stay in clear headers: UUID and W3C Trace Context hold no text."""
SEALED_IDS_ATTRIBUTE = "sealedids"
"""Attribute with the encrypted values of those in any other format."""
_DATA_FIELDS = frozenset({"data", "data_base64"})
_INTEGER_PATTERN = re.compile(r"-?[0-9]+")
MAX_INTEGER_DIGITS = 100
_EVENT_TYPE_PATTERN = re.compile(r"^(?P<name>[a-z_]+(?:\.[a-z_]+)+)\.v(?P<version>\d+)$")


SEALED_CONTENT_TYPE = "application/octet-stream"
OWN_SOURCE_PREFIX = "anabranch/"
"""Prefix of `ce_source` in our own events."""
DEFAULT_TENANT = "default"


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

    async def encode(self, event: Event[Any], topic: str, key: str) -> Record:
        # Nulls are left out, except on `outcomes`, which other programs read.
        payload = event.data.model_dump_json(exclude_none=event.data.topic != OUTCOMES).encode()
        headers = _format_headers(event)
        subject = _resolve_key_subject(event)
        tenant = event.tenant or getattr(event.data, "tenant", None)
        if subject is not None and tenant is not None:
            context = _build_sealing_context(
                event.event_id, event.data.event_type(), event.tenant, topic
            )
            sealed = await self.keys.seal(tenant, subject, payload, context=context, key=event.key)
            # None: this tenant's events are stored unencrypted.
            if sealed is not None:
                payload = sealed[1]
                headers |= {
                    "ce_keyid": str(sealed[0]).encode(),
                    "content-type": SEALED_CONTENT_TYPE.encode(),
                }
                headers |= await self._seal_correlation_ids(
                    headers, tenant, subject, sealed[0], event, topic
                )
        if self.signer is not None:
            # Last: the signature covers the sealed payload and all attributes.
            headers[SIGNATURE_HEADER] = self.signer.sign(topic, payload, headers)
        return Record(topic, key.encode(), payload, headers)

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
        topic = get_base_topic(stored_record.position.topic)
        # Before the version is looked at: a forged newer version would otherwise pause the
        # partition.
        if topic != RAW and self.signer is not None:
            self.signer.check(stored_record)
        attributes, payload = self._parse_attributes(stored_record.record)
        event_class, version = self._resolve_event_class(topic, attributes)
        # Events of tenants without encryption are on sealed topics too, without a key id.
        if event_class.topic.is_sealed and "keyid" in attributes:
            payload = await self._open_payload(
                attributes, payload, attributes["type"], stored_record.position.topic
            )
            if SEALED_IDS_ATTRIBUTE in attributes:
                sealed_ids = base64.b64decode(attributes[SEALED_IDS_ATTRIBUTE])
                opened = await self._open_payload(
                    attributes, sealed_ids, SEALED_IDS_ATTRIBUTE, stored_record.position.topic
                )
                attributes |= json.loads(opened)
        data = _validate_data(
            event_class,
            payload if version == event_class.version else _upcast(event_class, payload, version),
        )
        if topic != RAW:
            return _build_own_event(attributes, data, stored_record)
        is_ours = attributes["source"].startswith(OWN_SOURCE_PREFIX)
        return _build_foreign_event(
            attributes, data, payload, stored_record, is_ours and self.is_own_record(stored_record)
        )

    async def _open_payload(
        self, attributes: Mapping[str, str], sealed: bytes, event_type: str, topic: str
    ) -> bytes:
        key, event_id = _parse_uuid(attributes, "keyid"), attributes["id"]
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

    def _parse_attributes(self, record: Record) -> tuple[dict[str, str], bytes]:
        if record.value is None:
            raise MalformedEvent("The record has no value.")
        if get_content_type(record) == STRUCTURED_CONTENT_TYPE:
            attributes, payload = _parse_structured(record.value)
            return _validate_attributes(attributes), payload
        attributes = {
            name[3:]: _decode_header(name, value)
            for name, value in record.headers.items()
            if name.startswith("ce_")
        }
        missing = [
            name for name in ("specversion", "id", "source", "type") if not attributes.get(name)
        ]
        if missing:
            raise MalformedEvent(
                f"CloudEvents headers are missing: {', '.join('ce_' + name for name in missing)}."
            )
        return _validate_attributes(attributes), record.value

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


def parse_uuid_or_none(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates: JSON may escape them and Python reads them, but UTF-8 cannot encode
    them.
    """
    return text.encode(errors="replace").decode()


def _parse_json(value: bytes, description: str) -> Any:
    try:
        return json.loads(value, parse_constant=_parse_finite, parse_float=_parse_finite)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent(f"{description} is not valid JSON: {error}.") from error


def _parse_finite(number: str) -> float:
    # Python's json reads NaN and Infinity, which are not JSON, and turns too large numbers into
    # infinity.
    if not math.isfinite(parsed := float(number)):
        raise ValueError(f"{number[:20]} is not a finite number")
    return parsed


def _validate_attributes(attributes: dict[str, str]) -> dict[str, str]:
    if (version := attributes["specversion"]) != SPECVERSION:
        raise MalformedEvent(
            f"Unsupported CloudEvents version {replace_surrogates(version)[:20]!r}. Use "
            f"{SPECVERSION}."
        )
    for name, value in attributes.items():
        if replace_surrogates(value) != value:
            raise MalformedEvent(f"ce_{name} contains a lone surrogate, which is not valid text.")
    for name in _PROPAGATED_ATTRIBUTES:
        if (length := len(attributes.get(name, "").encode())) > MAX_ATTRIBUTE_BYTES:
            raise MalformedEvent(
                f"ce_{name} has {length} bytes; {MAX_ATTRIBUTE_BYTES} are allowed."
            )
    return attributes


def get_content_type(record: Record) -> str:
    for name, value in record.headers.items():
        if name.lower() == "content-type":
            return value.decode(errors="replace").partition(";")[0].strip().lower()
    return ""


def _decode_header(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MalformedEvent(f"Header {name} is not UTF-8.") from error


def _parse_structured(value: bytes) -> tuple[dict[str, str], bytes]:
    envelope = _parse_json(value, "The CloudEvent")
    if not isinstance(envelope, dict) or len(_DATA_FIELDS & envelope.keys()) != 1:
        raise MalformedEvent(
            "A structured CloudEvent must be a JSON object with either `data` or `data_base64`."
        )
    missing = [
        name
        for name in ("specversion", "id", "source", "type")
        if not (envelope.get(name) and isinstance(envelope[name], str))
    ]
    if missing:
        raise MalformedEvent(
            f"CloudEvents attributes are missing or not text: {', '.join(missing)}."
        )
    attributes = {
        name: str(value)
        for name, value in envelope.items()
        if name not in _DATA_FIELDS and value is not None
    }
    return attributes, _extract_data(envelope)


def _extract_data(envelope: Mapping[str, Any]) -> bytes:
    # CloudEvents 1.0, JSON event format, section 3.1.1: binary data is in `data_base64`.
    if "data" in envelope:
        return json.dumps(envelope["data"]).encode()
    try:
        return base64.b64decode(envelope["data_base64"], validate=True)
    except (ValueError, TypeError) as error:
        raise MalformedEvent(f"data_base64 is not base64: {error}.") from error


def _validate_data(event_class: type[EventData], payload: bytes) -> EventData:
    try:
        return event_class.model_validate_json(payload)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'payload'}: {problem['msg']}"
            for problem in error.errors(include_input=False)[:5]
        )
        is_foreign_blob = any(problem["type"] == FOREIGN_BLOB for problem in error.errors())
        raise MalformedEvent(
            f"Invalid payload of {event_class.event_type()}: {problems}.",
            code="FOREIGN_BLOB" if is_foreign_blob else None,
        ) from error


def _upcast(event_class: type[EventData], payload: bytes, version: int) -> bytes:
    """Convert a payload of an older version to the newest. Raises MalformedEvent if that fails."""
    older_payload = _parse_json(payload, "The payload")
    try:
        return json.dumps(event_class.upcast_payload(older_payload, version)).encode()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedEvent(
            f"Invalid payload of {event_class.name}.v{version}: {error!r}."
        ) from error


def _parse_time(attributes: Mapping[str, str]) -> datetime | None:
    text = attributes.get("time")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise MalformedEvent(f"ce_time {text!r} is not in RFC 3339 format.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _parse_integer(attributes: Mapping[str, str], name: str) -> int | None:
    text = attributes.get(name)
    if text is None:
        return None
    if not _INTEGER_PATTERN.fullmatch(text):
        raise MalformedEvent(f"ce_{name} {text[:40]!r} is not an integer.")
    if len(text) > MAX_INTEGER_DIGITS or not 0 <= int(text) < 2**63:
        raise MalformedEvent(f"ce_{name} {text[:40]} is outside 0 … 2^63 - 1.")
    return int(text)


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
        time=_parse_time(attributes),
        tenant=tenant,
        correlation_id=attributes.get("correlationid"),
        traceparent=attributes.get("traceparent"),
        sequence=_parse_integer(attributes, "sequence"),
        epoch=_parse_integer(attributes, "sequenceepoch"),
        step=_parse_integer(attributes, "sequencestep") or 0,
        payload_sha256=sha256_hex(
            # Canonical JSON: a repeated event with other spacing still has the same hash.
            attributes["type"].encode()
            + b"\n"
            + canonical_json(_parse_json(payload, "The payload"))
        ),
        position=stored_record.position,
        appended_at=stored_record.appended_at,
        is_ours=is_ours,
    )


def _build_own_event(
    attributes: Mapping[str, str], data: EventData, stored_record: StoredRecord
) -> Event[Any]:
    causation_id, document, key_id = (
        _parse_uuid(attributes, name) if name in attributes else None
        for name in ("causationid", "document", "keyid")
    )
    return Event(
        id=_parse_uuid(attributes, "id"),
        data=data,
        source=attributes["source"],
        event_id=attributes["id"],
        time=_parse_time(attributes),
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


def _parse_uuid(attributes: Mapping[str, str], name: str) -> UUID:
    try:
        return UUID(attributes[name])
    except ValueError as error:
        raise MalformedEvent(
            f"ce_{name} of {attributes['type']} is not a UUID: {error}."
        ) from error


def _resolve_key_subject(event: Event[Any]) -> UUID | None:
    """Return the document or run whose key seals the event.

    A dead letter without a document has a key of its own.
    """
    if not event.data.topic.is_sealed:
        return None
    ids = (getattr(event.data, name, None) for name in ("run_id", "feedback_id", "event_id"))
    return event.document_id or next(filter(None, ids), None)


def _build_sealing_context(event_id: str, event_type: str, tenant: str | None, topic: str) -> bytes:
    """Build the associated data of a sealed payload, so that it opens in no other event, tenant or
    topic.
    """
    return json.dumps([event_id, event_type, tenant, topic]).encode()


def _format_headers(event: Event[Any]) -> dict[str, bytes]:
    values = {
        "ce_specversion": SPECVERSION,
        "ce_id": event.event_id,
        "ce_source": event.source,
        "ce_type": event.data.event_type(),
        "ce_time": event.time.isoformat() if event.time else None,
        "ce_sequence": str(event.sequence) if event.sequence is not None else None,
        "ce_sequenceepoch": str(event.epoch) if event.epoch is not None else None,
        "ce_sequencestep": str(event.step) if event.step else None,
        "ce_subject": f"document/{event.document_id}" if event.document_id else None,
        "ce_tenant": event.tenant,
        "ce_document": str(event.document_id) if event.document_id else None,
        "ce_how": event.pipeline_fingerprint,
        "ce_causationid": str(event.causation_id) if event.causation_id else None,
        "ce_correlationid": event.correlation_id,
        "ce_traceparent": event.traceparent,
        "content-type": "application/json",
    }
    return {name: value.encode() for name, value in values.items() if value is not None}
