"""Signatures of events: HMAC-SHA256 (RFC 2104) under a key that HKDF (RFC 5869) derives from the
master key.

Only processes with the master key may write to topics behind ingress. A record without a valid
signature was written by someone else.
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
