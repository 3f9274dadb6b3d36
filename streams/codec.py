"""Facts as records and back: CloudEvents 1.0, Kafka protocol binding, binary mode (structured mode is read as well).

The payload of what is said of a document or a run is sealed with its key; everything that routing and erasing need is a clear header.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from schemas.errors import MalformedEvent, NewerVersion, PermanentError
from schemas.events import Event, Fact, declared
from schemas.events.declaration import FOREIGN_BLOB
from schemas.events.raw import is_tenant
from schemas.ids import canonical_json, document_id, received_id, sha256_hex
from schemas.ports.keys import TAMPERED, Keys
from schemas.records import Record, StoredRecord
from streams.signatures import SIGNATURE, Signatures
from streams.topics import CONTROL, DEAD_LETTERS, OUTCOMES, RAW

SPECVERSION = "1.0"
STRUCTURED = "application/cloudevents+json"
LONGEST_ATTRIBUTE = 1024
"""Bytes of those attributes that every fact carries on: an index of the tables takes three names of this kind, and no more."""
_CARRIED = ("id", "source", "type", "correlationid", "traceparent")
_CORRELATING = {"correlationid": re.compile("|[0-9a-fA-F-]{36}"), "traceparent": re.compile("|[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")}
"""Attributes of others that ride along, and how they look where they can hold no words: a UUID, and W3C Trace Context."""
ASIDE = "sealedids"
"""The attribute that holds them sealed where they look otherwise."""
_DATA = frozenset({"data", "data_base64"})
_INTEGER = re.compile(r"-?[0-9]+")
LONGEST_INTEGER = 100
_TYPE = re.compile(r"^(?P<name>[a-z_]+(?:\.[a-z_]+)+)\.v(?P<version>\d+)$")


CLEAR_TOPICS = frozenset({RAW, OUTCOMES, CONTROL})
"""What foreign producers write and read, and decisions, which hold no text of a document."""
SEALED = "application/octet-stream"
OWN = "anabranch/"
"""What the sources of our own events begin with."""
DEFAULT_TENANT = "default"


class PlainKeys:
    """No encryption: payloads stay readable."""

    async def seal(self, tenant: str, subject: UUID, payload: bytes, *, context: bytes, key: UUID | None) -> None:
        return None

    async def fetch(self, keys: Iterable[UUID]) -> None:
        """There are none."""

    async def open(self, key: UUID, payload: bytes, *, context: bytes) -> bytes:
        raise PermanentError("the payload is sealed, and this process has no keystore", code="KEY_MISSING", remedy="Read it where the keystore is.")


def base_topic(topic: str) -> str:
    """The topic of the plain pipeline that `topic` stands for: a generation's own topics are `<topic>.<generation>`."""
    return topic.partition(".")[0]


class Codec:
    """Raises MalformedEvent for what cannot be read, NewerVersion where an event of ours is newer than this program. Older versions of `events` are read as
    the newest. Without `signatures` nothing is signed, and every record is taken for one that we wrote."""

    def __init__(self, keys: Keys | None = None, events: Sequence[type[Event]] = declared(), signatures: Signatures | None = None) -> None:
        self.keys = keys or PlainKeys()
        self.signatures = signatures
        self.types = {(event.topic, f"{event.name}.v{version}"): (event, version) for event in events for version in range(1, event.version + 1)}
        self.newest = {(event.topic, event.name): event.version for event in events}

    async def encode(self, fact: Fact[Any], topic: str, key: str) -> Record:
        payload = fact.data.model_dump_json(exclude_none=fact.data.topic != OUTCOMES).encode()
        headers = _headers(fact)
        subject, tenant = _subject(fact), fact.tenant or getattr(fact.data, "tenant", None)
        if subject is not None and tenant is not None:
            context = _context(fact.event_id, fact.data.event_type(), fact.tenant, topic)
            sealed = await self.keys.seal(tenant, subject, payload, context=context, key=fact.key)
            if sealed is not None:
                payload = sealed[1]
                headers |= {"ce_keyid": str(sealed[0]).encode(), "content-type": SEALED.encode()}
                headers |= await self._set_aside(headers, tenant, subject, sealed[0], fact, topic)
        if self.signatures is not None:
            headers[SIGNATURE] = self.signatures.sign(topic, payload, headers)
        return Record(topic, key.encode(), payload, headers)

    async def _set_aside(self, headers: dict[str, bytes], tenant: str, subject: UUID, key: UUID, fact: Fact[Any], topic: str) -> dict[str, bytes]:
        """Takes what a producer wrote into attributes that are carried on, unless it can only be a number, and gives it back sealed."""
        told = {name: headers.pop(f"ce_{name}").decode() for name, form in _CORRELATING.items() if not form.fullmatch(headers.get(f"ce_{name}", b"").decode())}
        if not told:
            return {}
        sealed = await self.keys.seal(tenant, subject, json.dumps(told).encode(), context=_context(fact.event_id, ASIDE, fact.tenant, topic), key=key)
        assert sealed is not None, "a key that sealed the payload seals this too"
        return {f"ce_{ASIDE}": base64.b64encode(sealed[1])}

    async def prepare(self, records: Sequence[StoredRecord]) -> None:
        """Ask for the keys of all of them at once, so that none need wait for its own."""
        told = (stored.record.headers.get("ce_keyid", b"").decode(errors="replace") for stored in records)
        await self.keys.fetch({key for text in told if (key := _as_uuid(text)) is not None})

    def is_ours(self, stored: StoredRecord) -> bool:
        """Whether a process with our master key wrote the record."""
        return self.signatures is None or self.signatures.verify(stored)

    async def decode(self, stored: StoredRecord) -> Fact[Any]:
        """Raises PermanentError with code UNSIGNED_EVENT for what others wrote behind ingress, whatever version it claims to have."""
        topic = base_topic(stored.position.topic)
        if topic != RAW and self.signatures is not None:
            self.signatures.check(stored)
        attributes, payload = self._attributes(stored.record)
        event, version = self._event_class(topic, attributes)
        if topic not in CLEAR_TOPICS and "keyid" in attributes:
            payload = await self._open(attributes, payload, attributes["type"], stored.position.topic)
            attributes |= await self._put_back(attributes, stored.position.topic)
        data = _validated(event, payload if version == event.version else _upcast(event, payload, version))
        return (
            _foreign(attributes, data, payload, stored, attributes["source"].startswith(OWN) and self.is_ours(stored))
            if topic == RAW
            else _own(attributes, data, stored)
        )

    async def _put_back(self, attributes: Mapping[str, str], topic: str) -> dict[str, str]:
        if ASIDE not in attributes:
            return {}
        return dict(json.loads(await self._open(attributes, base64.b64decode(attributes[ASIDE]), ASIDE, topic)))

    async def _open(self, attributes: Mapping[str, str], sealed: bytes, event_type: str, topic: str) -> bytes:
        """Older versions bound a payload to its event only. What is bound to tenant and topic does not open that way, so trying it loses nothing."""
        key, identity = _uuid(attributes, "keyid"), attributes["id"]
        try:
            return await self.keys.open(key, sealed, context=_context(identity, event_type, attributes.get("tenant"), topic))
        except PermanentError as error:
            if error.code != TAMPERED:
                raise
            return await self.keys.open(key, sealed, context=f"{identity} {event_type}".encode())

    def _attributes(self, record: Record) -> tuple[dict[str, str], bytes]:
        if record.value is None:
            raise MalformedEvent("the record has no value")
        if _content_type(record) == STRUCTURED:
            attributes, payload = _structured(record.value)
            return _measured(attributes), payload
        attributes = {name[3:]: _text(name, value) for name, value in record.headers.items() if name.startswith("ce_")}
        missing = [name for name in ("specversion", "id", "source", "type") if not attributes.get(name)]
        if missing:
            raise MalformedEvent(f"CloudEvents headers are missing: {', '.join('ce_' + name for name in missing)}")
        return _measured(attributes), record.value

    def _event_class(self, topic: str, attributes: Mapping[str, str]) -> tuple[type[Event], int]:
        """And the version that the record has."""
        event_type = attributes["type"]
        if found := self.types.get((topic, event_type)):
            return found
        match = _TYPE.match(event_type)
        newest = self.newest.get((topic, match["name"]), 0) if match else 0
        # A type that nobody has heard of is a newer program's where ours is the author; from anybody else it is a mistake.
        if topic != RAW and match and int(match["version"]) > newest and (newest or attributes["source"].startswith(OWN)):
            raise NewerVersion(f"{event_type} on topic {topic} is newer than {f'v{newest}, the newest' if newest else 'what'} this worker knows")
        if newest:
            raise MalformedEvent(f"{event_type} is a version that this system does not know; the newest is v{newest}", code="UNKNOWN_VERSION")
        known = ", ".join(sorted(kind for at, kind in self.types if at == topic))
        raise MalformedEvent(f"topic {topic} knows no event type {event_type!r}; it takes {known}", code="UNKNOWN_TYPE")


def clues(record: Record) -> tuple[str | None, str | None, str | None]:
    """What can still be told of a record that cannot be read: the producer's event id, its source, the event type."""
    found = {name[3:]: value.decode(errors="replace") for name, value in record.headers.items() if name.startswith("ce_")}
    if _content_type(record) == STRUCTURED:
        found |= {name: value for name, value in _guessed(record.value or b"").items() if isinstance(value, str)}
    event_id, source, event_type = (value and _short(value) for value in map(found.get, ("id", "source", "type")))
    return event_id, source, event_type


def guessed_text(record: Record, name: str) -> str | None:
    """What an invalid payload still says under this name, cut where it is longer than any name."""
    found = _guessed_field(record, name)
    return found and _short(found)


def guessed_document(stored: StoredRecord, tenant: str) -> UUID | None:
    """Which document a record speaks of that cannot be read, where that can be told all the same."""
    if base_topic(stored.position.topic) != RAW:
        return _as_uuid((stored.record.headers.get("ce_document") or b"").decode(errors="replace"))
    name = _guessed_field(stored.record, "external_id") or _guessed_field(stored.record, "source_uri")
    if not name:
        return _as_uuid(_guessed_field(stored.record, "document_id") or "")
    return document_id(tenant, (clues(stored.record)[1] or "") if "ce_sequence" in stored.record.headers else "", _written(name))


def _as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def owner(stored: StoredRecord) -> str | None:
    """Whose a record is, without reading what is sealed; None where it is nobody's (decisions). What a producer sends says so in its payload only, and is the
    default tenant's where it does not, or says what is no name: what is told of it is sealed with a key of its tenant."""
    if base_topic(stored.position.topic) == RAW:
        said = _written(_guessed_field(stored.record, "tenant") or DEFAULT_TENANT)
        return said if is_tenant(said) else DEFAULT_TENANT
    said = stored.record.headers.get("ce_tenant", b"").decode(errors="replace")
    return said if is_tenant(said) else None


def _guessed_field(record: Record, name: str) -> str | None:
    payload = _guessed(record.value or b"")
    inner = payload.get("data", payload)
    found = inner.get(name) if isinstance(inner, dict) else None
    return found if isinstance(found, str) else None


def _short(text: str) -> str:
    return text.encode(errors="replace")[:LONGEST_ATTRIBUTE].decode(errors="ignore")


def _written(text: str) -> str:
    """As it can be written: JSON may escape half of a surrogate pair, and Python takes it."""
    return text.encode(errors="replace").decode()


def _guessed(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _loaded(value: bytes, what: str) -> Any:
    try:
        return json.loads(value, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent(f"{what} is not JSON that can be read: {error}") from error


def _finite(number: str) -> float:
    """NaN and infinity are no JSON, though Python reads them (and what is too great for it as infinity)."""
    if not math.isfinite(found := float(number)):
        raise ValueError(f"{number[:20]} is no number that JSON has")
    return found


def _measured(attributes: dict[str, str]) -> dict[str, str]:
    if (version := attributes["specversion"]) != SPECVERSION:
        raise MalformedEvent(f"CloudEvents {_written(version)[:20]!r} is not {SPECVERSION}, the version that is read here")
    for name, value in attributes.items():
        if _written(value) != value:
            raise MalformedEvent(f"ce_{name} holds half of a surrogate pair, which is no text")
    for name in _CARRIED:
        if (length := len(attributes.get(name, "").encode())) > LONGEST_ATTRIBUTE:
            raise MalformedEvent(f"ce_{name} has {length} bytes; {LONGEST_ATTRIBUTE} are allowed")
    return attributes


def _content_type(record: Record) -> str:
    for name, value in record.headers.items():
        if name.lower() == "content-type":
            return value.decode(errors="replace").partition(";")[0].strip().lower()
    return ""


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MalformedEvent(f"header {name} is not UTF-8") from error


def _structured(value: bytes) -> tuple[dict[str, str], bytes]:
    envelope = _loaded(value, "the CloudEvent")
    if not isinstance(envelope, dict) or len(_DATA & envelope.keys()) != 1:
        raise MalformedEvent("a structured CloudEvent is a JSON object with `data` (or `data_base64`)")
    missing = [name for name in ("specversion", "id", "source", "type") if not (envelope.get(name) and isinstance(envelope[name], str))]
    if missing:
        raise MalformedEvent(f"CloudEvents attributes are missing or no text: {', '.join(missing)}")
    attributes = {name: str(value) for name, value in envelope.items() if name not in _DATA and value is not None}
    return attributes, _data(envelope)


def _data(envelope: Mapping[str, Any]) -> bytes:
    """CloudEvents 1.0, JSON event format, section 3.1.1: what a producer takes for binary data comes in base64."""
    if "data" in envelope:
        return json.dumps(envelope["data"]).encode()
    try:
        return base64.b64decode(envelope["data_base64"], validate=True)
    except (ValueError, TypeError) as error:
        raise MalformedEvent(f"data_base64 is not base64: {error}") from error


def _validated(event: type[Event], payload: bytes) -> Event:
    try:
        return event.model_validate_json(payload)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'payload'}: {item['msg']}" for item in error.errors(include_input=False)[:5])
        foreign = any(item["type"] == FOREIGN_BLOB for item in error.errors())
        raise MalformedEvent(f"{event.event_type()}: {problems}", code="FOREIGN_BLOB" if foreign else None) from error


def _upcast(event: type[Event], payload: bytes, version: int) -> bytes:
    """An older version as the newest. What was never valid is malformed, whatever way it fails."""
    older = _loaded(payload, "the payload")
    try:
        return json.dumps(event.upcast(older, version)).encode()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedEvent(f"{event.name}.v{version} does not hold what version {version} has: {error!r}") from error


def _time(attributes: Mapping[str, str]) -> datetime | None:
    given = attributes.get("time")
    if not given:
        return None
    try:
        moment = datetime.fromisoformat(given.upper())
    except ValueError as error:
        raise MalformedEvent(f"ce_time {given!r} is not RFC 3339") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _number(attributes: Mapping[str, str], name: str) -> int | None:
    given = attributes.get(name)
    if given is None:
        return None
    if not _INTEGER.fullmatch(given):
        raise MalformedEvent(f"ce_{name} {given[:40]!r} is not an integer")
    if len(given) > LONGEST_INTEGER or not 0 <= int(given) < 2**63:
        raise MalformedEvent(f"ce_{name} {given[:40]} is outside 0 … 2^63 - 1")
    return int(given)


def _foreign(attributes: Mapping[str, str], data: Event, payload: bytes, stored: StoredRecord, ours: bool) -> Fact[Any]:
    tenant = str(getattr(data, "tenant", DEFAULT_TENANT))
    source, event_id = attributes["source"], attributes["id"]
    return Fact(
        id=received_id(tenant, source, event_id),
        data=data,
        source=source,
        event_id=event_id,
        time=_time(attributes),
        tenant=tenant,
        correlation_id=attributes.get("correlationid"),
        traceparent=attributes.get("traceparent"),
        sequence=_number(attributes, "sequence"),
        epoch=_number(attributes, "sequenceepoch"),
        step=_number(attributes, "sequencestep") or 0,
        payload_sha256=sha256_hex(attributes["type"].encode() + b"\n" + canonical_json(_loaded(payload, "the payload"))),
        position=stored.position,
        appended_at=stored.appended_at,
        ours=ours,
    )


def _own(attributes: Mapping[str, str], data: Event, stored: StoredRecord) -> Fact[Any]:
    cause, document, key = (_uuid(attributes, name) if name in attributes else None for name in ("causationid", "document", "keyid"))
    return Fact(
        id=_uuid(attributes, "id"),
        data=data,
        source=attributes["source"],
        event_id=attributes["id"],
        time=_time(attributes),
        tenant=attributes.get("tenant"),
        document_id=document,
        how=attributes.get("how"),
        causation_id=cause,
        correlation_id=attributes.get("correlationid"),
        traceparent=attributes.get("traceparent"),
        key=key,
        position=stored.position,
        appended_at=stored.appended_at,
    )


def _uuid(attributes: Mapping[str, str], name: str) -> UUID:
    try:
        return UUID(attributes[name])
    except ValueError as error:
        raise MalformedEvent(f"ce_{name} of {attributes['type']} is not a UUID: {error}") from error


def _subject(fact: Fact[Any]) -> UUID | None:
    """Whose key seals it. A dead letter that names no document has a key of its own."""
    named = (getattr(fact.data, name, None) for name in ("run_id", "feedback_id", *(["event_id"] if fact.data.topic == DEAD_LETTERS else [])))
    subject: UUID | None = fact.document_id or next(filter(None, named), None)
    return None if fact.data.topic in CLEAR_TOPICS else subject


def _context(identity: str, event_type: str, tenant: str | None, topic: str) -> bytes:
    """What a sealed payload is bound to, so that it opens in no other event, tenant or topic."""
    return json.dumps([identity, event_type, tenant, topic]).encode()


def _headers(fact: Fact[Any]) -> dict[str, bytes]:
    values = {
        "ce_specversion": SPECVERSION,
        "ce_id": fact.event_id,
        "ce_source": fact.source,
        "ce_type": fact.data.event_type(),
        "ce_time": fact.time.isoformat() if fact.time else None,
        "ce_sequence": str(fact.sequence) if fact.sequence is not None else None,
        "ce_sequenceepoch": str(fact.epoch) if fact.epoch is not None else None,
        "ce_sequencestep": str(fact.step) if fact.step else None,
        "ce_subject": f"document/{fact.document_id}" if fact.document_id else None,
        "ce_tenant": fact.tenant,
        "ce_document": str(fact.document_id) if fact.document_id else None,
        "ce_how": fact.how,
        "ce_causationid": str(fact.causation_id) if fact.causation_id else None,
        "ce_correlationid": fact.correlation_id,
        "ce_traceparent": fact.traceparent,
        "content-type": "application/json",
    }
    return {name: value.encode() for name, value in values.items() if value is not None}
