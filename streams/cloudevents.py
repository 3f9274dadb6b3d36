"""CloudEvents 1.0 in records, by the Kafka protocol binding, and their signatures.

Binary mode (attributes in headers) is written, binary and structured mode (JSON) are read.
Everything that parses raises MalformedEvent.

A signature is HMAC-SHA256 (RFC 2104) under a key that HKDF (RFC 5869) derives from the master key.
Only processes with the master key may write to topics behind ingress. A record without a valid
signature was written by someone else.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import re
import struct
from base64 import b64encode
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from schemas.errors import MalformedEvent, PermanentError
from schemas.events import Event
from schemas.topics import Headers, Record, StoredRecord

SIGNATURE_HEADER = "ce_signature"
UNSIGNED_EVENT = "UNSIGNED_EVENT"
_CONTENT_TYPE = "content-type"
_pack_length = struct.Struct(">Q").pack
_INFO = b"anabranch event signature v1"
UnsignedOffsets = Mapping[str, Mapping[int, int]]
"""By topic and partition, the offset below which unsigned events of older versions are accepted."""


def derive_signing_key(master_key: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=_INFO).derive(master_key)


class EventSigner:
    """Signs with the first key and verifies with all, so that events stay valid if the master key
    is rotated.
    """

    def __init__(
        self, keys: Iterable[bytes], unsigned_below: UnsignedOffsets | None = None
    ) -> None:
        self._keys = tuple(keys)
        self._unsigned_below = unsigned_below or {}

    def sign(self, topic: str, value: bytes, headers: Headers) -> bytes:
        return _compute_signature(self._keys[0], topic, value, headers)

    def derive_secrets(self, purpose: bytes) -> list[bytes]:
        """Derive a secret for a purpose from each key, the current one first."""
        return [compute_mac(key, b"anabranch secret " + purpose) for key in self._keys]

    def verify(self, stored_record: StoredRecord) -> bool:
        """Return whether the record has a valid signature or predates signatures."""
        position, record = stored_record.position, stored_record.record
        signature = record.headers.get(SIGNATURE_HEADER)
        if signature is None or record.value is None:
            # Unsigned records are accepted only below the offset at which signing began.
            return position.offset < self._unsigned_below.get(position.topic, {}).get(
                position.partition, 0
            )
        value = record.value
        return any(
            # Constant time: the duration must not reveal how many bytes match.
            hmac.compare_digest(
                signature, _compute_signature(key, position.topic, value, record.headers)
            )
            for key in self._keys
        )

    def check(self, stored_record: StoredRecord) -> None:
        """Raise PermanentError unless the record has a valid signature or predates signatures."""
        if self.verify(stored_record):
            return
        problem = (
            "an invalid signature"
            if SIGNATURE_HEADER in stored_record.record.headers
            else "no signature"
        )
        raise PermanentError(
            f"An event on topic {stored_record.position.topic}, which only Anabranch writes, has "
            f"{problem}.",
            code=UNSIGNED_EVENT,
            remedy=(
                "Give every Anabranch process the same master key. Restrict producers to topic "
                "`raw` with the ACLs that `anabranch topics acls` prints."
            ),
        )


def compute_mac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)


def _compute_signature(key: bytes, topic: str, value: bytes, headers: Headers) -> bytes:
    """Sign all that decoding reads: topic, payload and CloudEvents attributes, each prefixed with
    its length.
    """
    # Without the record's key: it only chooses a partition, and a dead letter of `raw` does not
    # store it.
    parts = [topic.encode(), value]
    for name in sorted(headers):
        if name == _CONTENT_TYPE or (name.startswith("ce_") and name != SIGNATURE_HEADER):
            parts += name.encode(), headers[name]
    # Prefixed lengths keep apart parts that join to the same bytes.
    framed = [piece for part in parts for piece in (_pack_length(len(part)), part)]
    return b64encode(compute_mac(key, b"".join(framed)))


SPECVERSION = "1.0"
STRUCTURED_CONTENT_TYPE = "application/cloudevents+json"
MAX_ATTRIBUTE_BYTES = 1024
"""Size limit of propagated attributes: three of them must fit into one index entry of Postgres."""
_REQUIRED_ATTRIBUTES = ("specversion", "id", "source", "type")
_PROPAGATED_ATTRIBUTES = ("id", "source", "type", "correlationid", "traceparent")
_DATA_FIELDS = frozenset({"data", "data_base64"})
_INTEGER_PATTERN = re.compile(r"-?[0-9]+")
MAX_INTEGER_DIGITS = 100


def format_headers(event: Event[Any]) -> dict[str, bytes]:
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


def parse_record(record: Record) -> tuple[dict[str, str], bytes]:
    """Return the attributes (without `ce_`) and the payload of a record in either mode."""
    if record.value is None:
        raise MalformedEvent("The record has no value.")
    if get_content_type(record) == STRUCTURED_CONTENT_TYPE:
        attributes, payload = _parse_structured(record.value)
        return _validate_attributes(attributes), payload
    attributes = {}
    for name, value in record.headers.items():
        if name.startswith("ce_"):
            try:
                attributes[name[3:]] = value.decode()
            except UnicodeDecodeError as error:
                raise MalformedEvent(f"Header {name} is not UTF-8.") from error
    missing = [name for name in _REQUIRED_ATTRIBUTES if not attributes.get(name)]
    if missing:
        raise MalformedEvent(
            f"CloudEvents headers are missing: {', '.join('ce_' + name for name in missing)}."
        )
    return _validate_attributes(attributes), record.value


def _parse_structured(value: bytes) -> tuple[dict[str, str], bytes]:
    envelope = parse_json(value.removeprefix(BOM_UTF8), "The CloudEvent")
    if not isinstance(envelope, dict) or len(_DATA_FIELDS & envelope.keys()) != 1:
        raise MalformedEvent(
            "A structured CloudEvent must be a JSON object with either `data` or `data_base64`."
        )
    missing = [
        name
        for name in _REQUIRED_ATTRIBUTES
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
    # CloudEvents 1.0, JSON event format, section 3.1.1: binary data is in `data_base64`.
    if "data" in envelope:
        return attributes, json.dumps(envelope["data"]).encode()
    try:
        return attributes, base64.b64decode(envelope["data_base64"], validate=True)
    except (ValueError, TypeError) as error:
        raise MalformedEvent(f"data_base64 is not base64: {error}.") from error


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


def parse_time(attributes: Mapping[str, str]) -> datetime | None:
    text = attributes.get("time")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise MalformedEvent(f"ce_time {text!r} is not in RFC 3339 format.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_integer(attributes: Mapping[str, str], name: str) -> int | None:
    text = attributes.get(name)
    if text is None:
        return None
    if not _INTEGER_PATTERN.fullmatch(text):
        raise MalformedEvent(f"ce_{name} {text[:40]!r} is not an integer.")
    if len(text) > MAX_INTEGER_DIGITS or not 0 <= int(text) < 2**63:
        raise MalformedEvent(f"ce_{name} {text[:40]} is outside 0 … 2^63 - 1.")
    return int(text)


def parse_uuid(attributes: Mapping[str, str], name: str) -> UUID:
    try:
        return UUID(attributes[name])
    except ValueError as error:
        raise MalformedEvent(
            f"ce_{name} of {attributes['type']} is not a UUID: {error}."
        ) from error


def parse_uuid_or_none(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def parse_json(value: bytes, description: str) -> Any:
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


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which Python cannot encode as UTF-8, but reads from JSON escapes and
    from file names that are not UTF-8.
    """
    return text.encode(errors="replace").decode()
