"""Deterministic ids and keys: the same parts give the same id on every machine."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

THREADLESS_BYTES = 64 * 1024
"""Longest file that is read or written in the event loop."""
IdPart = str | bytes | int | UUID | None | Sequence["IdPart"]


def parse_uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


def _encode(part: IdPart) -> bytes:
    # The common types first: an event has a dozen of these parts.
    if isinstance(part, str):
        tag, body = b"s", part.encode()
    elif isinstance(part, UUID):
        tag, body = b"u", part.bytes
    elif isinstance(part, list | tuple):
        tag, body = b"l", b"".join([_encode(item) for item in part])
    # Before int, of which bool is a subclass: True and 1 would give the same id.
    elif isinstance(part, bool):
        raise TypeError("An id part cannot be a boolean. Use a string that names the case.")
    elif isinstance(part, int):
        tag, body = b"i", str(part).encode()
    elif isinstance(part, bytes):
        tag, body = b"b", part
    elif part is None:
        tag, body = b"n", b""
    else:
        raise TypeError(f"An id part cannot be a {type(part).__name__}.")
    # Tag and length keep different part lists apart, such as ("ab", "c") and ("a", "bc").
    return tag + struct.pack(">Q", len(body)) + body


def content_id(kind: str, *parts: IdPart) -> UUID:
    """Hash type-tagged, length-prefixed parts with SHA-256 into a UUIDv8 (RFC 9562).

    Raises TypeError for floats, booleans and mappings.
    """
    digest = bytearray(hashlib.sha256(_encode([kind, *parts])).digest()[:16])
    # Version 8 and variant 10 (RFC 9562).
    digest[6] = (digest[6] & 0x0F) | 0x80
    digest[8] = (digest[8] & 0x3F) | 0x80
    return UUID(bytes=bytes(digest))


def make_entity_id(tenant: str, type_: str, key: str) -> UUID:
    return content_id("entity", tenant, type_, key)


def fingerprint(*parts: object) -> str:
    """Return sixteen hex digits that change when any part changes.

    Parts must be JSON values. The order of keys in a mapping does not matter.
    """
    text = json.dumps(
        parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_document_id(tenant: str, source: str, name: str) -> UUID:
    """Make a document's id.

    `source` is the ce_source if the source numbers its changes, else ''. `name` is the external id
    or the source URI, else the hash of the bytes.
    """
    return content_id("document", tenant, source, name)


def make_received_id(tenant: str, source: str, event_id: str) -> UUID:
    """Make the internal id of an external event from its producer's id."""
    return content_id("received", tenant, source, event_id)


def make_derived_id(producer: str, pipeline_fingerprint: str, cause: UUID, ordinal: int) -> UUID:
    """Make the id of an event that a stage publishes. A retry gives the same id."""
    return content_id("event", producer, pipeline_fingerprint, cause, ordinal)


def find_id_range(prefix: str | None) -> tuple[UUID | None, UUID | None]:
    """Return the first and the last id with these digits; none for less than 4, or other text."""
    digits = (prefix or "").replace("-", "")
    if not re.fullmatch(r"[0-9a-fA-F]{4,32}", digits):
        return None, None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def compute_file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal."""
    # For a small file the switch to a thread and back takes ten times as long as the hash.
    if path.stat().st_size <= THREADLESS_BYTES:
        return sha256_hex(path.read_bytes())
    return await asyncio.to_thread(_hash_file, path)


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def canonical_json(value: Mapping[str, object]) -> bytes:
    """Encode JSON with sorted keys and without spaces, as the input of payload hashes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def upload_staging_prefix(tenant: str, event_id: UUID) -> str:
    """Return the prefix of an API upload, readable only by the event with this internal id.

    The SHA-256 follows.
    """
    return f"{api_staging_prefix(tenant)}{event_id}/"


def api_staging_prefix(tenant: str) -> str:
    """Return the prefix of all API uploads of a tenant.

    Ingress deletes blobs under it once they are pinned.
    """
    return f"uploads/{tenant}/api/"


def fetch_staging_prefix(tenant: str, event_id: UUID) -> str:
    """Return the prefix of the bytes that were downloaded for an event."""
    return f"uploads/{tenant}/fetched/{event_id}/"


def make_blob_key(tenant: str, document_id: UUID, sha256: str) -> str:
    """Return the key of a document's bytes. Keys are never shared between documents."""
    return f"{tenant}/{document_id}/{sha256}"
