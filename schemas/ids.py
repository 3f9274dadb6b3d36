"""Names that follow from content: the same parts give the same id on every machine, for ever."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

IdPart = str | bytes | int | UUID | None | Sequence["IdPart"]


def _encode(part: IdPart) -> bytes:
    match part:
        case None:
            tag, body = b"n", b""
        case bool():
            raise TypeError("a boolean is no part of an id: name the two cases instead")
        case str():
            tag, body = b"s", part.encode()
        case bytes():
            tag, body = b"b", part
        case int():
            tag, body = b"i", str(part).encode()
        case UUID():
            tag, body = b"u", part.bytes
        case list() | tuple():
            tag, body = b"l", b"".join(_encode(item) for item in part)
        case _:
            raise TypeError(f"{type(part).__name__} is no part of an id")
    return tag + struct.pack(">Q", len(body)) + body


def content_id(kind: str, *parts: IdPart) -> UUID:
    """SHA-256 over type-tagged, length-prefixed parts as a UUIDv8 (RFC 9562). Raises TypeError for floats, booleans and mappings."""
    digest = bytearray(hashlib.sha256(_encode([kind, *parts])).digest()[:16])
    digest[6] = (digest[6] & 0x0F) | 0x80
    digest[8] = (digest[8] & 0x3F) | 0x80
    return UUID(bytes=bytes(digest))


def fingerprint(*parts: object) -> str:
    """Sixteen hex digits that change when any part does. Parts must be JSON values; mappings are compared by sorted keys."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_document_id(tenant: str, source: str, name: str) -> UUID:
    """A document's id. `source` is the ce_source if it numbers its changes, else ''; `name` the external id or source URI, else the hash of the bytes."""
    return content_id("document", tenant, source, name)


def make_received_id(tenant: str, source: str, event_id: str) -> UUID:
    """The internal id of an event at the door, from what its producer called it."""
    return content_id("received", tenant, source, event_id)


def make_derived_id(producer: str, pipeline_fingerprint: str, cause: UUID, ordinal: int) -> UUID:
    """The id of a fact that a stage publishes: trying again gives the same one."""
    return content_id("event", producer, pipeline_fingerprint, cause, ordinal)


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(value: Mapping[str, object]) -> bytes:
    """JSON with sorted keys and no spaces: what payload hashes are taken of."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
