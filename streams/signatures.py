"""Signatures of events: HMAC-SHA256 (RFC 2104) under a key that HKDF (RFC 5869) derives from the master key.

Every process that may write behind ingress has the master key. What bears no valid signature was written by somebody else.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from base64 import b64encode
from collections.abc import Iterable, Mapping

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from schemas.errors import PermanentError
from schemas.records import Headers, StoredRecord

SIGNATURE = "ce_signature"
UNSIGNED = "UNSIGNED_EVENT"
_CONTENT_TYPE = "content-type"
_LENGTH = struct.Struct(">Q").pack
_INFO = b"anabranch event signature v1"
UnsignedBelow = Mapping[str, Mapping[int, int]]
"""By topic and partition, the offset below which events of a version without signatures are accepted."""


def signing_key(master: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=_INFO).derive(master)


class Signatures:
    """Signs with the first key; verifies with all of them, so that a rotated master key leaves older events valid."""

    def __init__(self, keys: Iterable[bytes], unsigned_below: UnsignedBelow | None = None) -> None:
        self._keys = tuple(keys)
        self._unsigned_below = unsigned_below or {}

    def sign(self, topic: str, value: bytes, headers: Headers) -> bytes:
        return _signature(self._keys[0], topic, value, headers)

    def verify(self, stored: StoredRecord) -> bool:
        """Whether we wrote the record: it is signed by us, or comes from before there were signatures."""
        position, record = stored.position, stored.record
        signature = record.headers.get(SIGNATURE)
        if signature is None or record.value is None:
            return position.offset < self._unsigned_below.get(position.topic, {}).get(position.partition, 0)
        value = record.value
        return any(hmac.compare_digest(signature, _signature(key, position.topic, value, record.headers)) for key in self._keys)

    def check(self, stored: StoredRecord) -> None:
        """Raises PermanentError unless we wrote the record."""
        if self.verify(stored):
            return
        what = "with a signature that is not ours" if SIGNATURE in stored.record.headers else "without a signature"
        raise PermanentError(
            f"an event came {what} on topic {stored.position.topic}, which only this system writes",
            code=UNSIGNED,
            remedy="Producers write topic `raw` only: `anabranch topics acls` prints the ACLs that enforce it. Every process of ours needs the same master key.",
        )


def mac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hashlib.sha256)


def _signature(key: bytes, topic: str, value: bytes, headers: Headers) -> bytes:
    """Over what decoding reads: the topic, the payload and the CloudEvents attributes, each with its length in front. The record's key only chooses a
    partition, and a dead letter of `raw` does not keep it."""
    named = sorted((name, given) for name, given in headers.items() if name == _CONTENT_TYPE or (name.startswith("ce_") and name != SIGNATURE))
    parts = [topic.encode(), value, *(part for name, given in named for part in (name.encode(), given))]
    return b64encode(mac(key, b"".join(_LENGTH(len(part)) + part for part in parts)))
