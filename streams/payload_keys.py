"""Payload encryption: AES-256-GCM (NIST SP 800-38D).

Each document and each run has a key of its own, wrapped by the master key combined with a per-key
share.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from uuid import UUID, uuid4

from cachetools import TTLCache
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from schemas.batching import CallBatcher
from schemas.errors import DataErased, KeyLost, PermanentError
from schemas.ids import sha256_hex
from schemas.ports.keys import TAMPERED, KeyShares, Keystore, StoredKey

KEY_BYTES = 32
NONCE_BYTES = 12
KEY_MISSING = "KEY_MISSING"
"""Error code for payloads whose key is not in the keystore."""
MAX_CACHED_KEYS = 20_000
CACHE_TTL_S = 2.0
"""A destroyed key may still decrypt in a process that cached it, for this long."""


class SealingKeys:
    """A `PayloadCipher` over a keystore. Belongs to one event loop.

    Payloads of tenants for which `is_plaintext_tenant` holds are not encrypted. Without `shares`
    the master key alone wraps new keys.
    """

    def __init__(
        self,
        keystore: Keystore,
        master_key: bytes,
        *,
        shares: KeyShares | None = None,
        is_plaintext_tenant: Callable[[str], bool] = lambda tenant: False,
    ) -> None:
        self._keystore, self._is_plaintext_tenant = keystore, is_plaintext_tenant
        self._wrapper = KeyWrapper(master_key, shares)
        self._cached_ciphers: TTLCache[UUID, AESGCM] = TTLCache(MAX_CACHED_KEYS, CACHE_TTL_S)
        self._key_lookups = CallBatcher(self._fetch_keys)
        self._key_requests = CallBatcher(self._obtain_keys)

    async def seal(
        self, tenant: str, subject: UUID, payload: bytes, *, context: bytes, key: UUID | None
    ) -> tuple[UUID, bytes] | None:
        # A given key always seals: the cause was sealed when its tenant still had encryption.
        if key is None and self._is_plaintext_tenant(tenant):
            return None
        if key:
            key_id, cipher = key, await self._get_cipher(key)
        else:
            # Never from the cache: a key that was destroyed must not seal later events.
            stored_key = await self._key_requests.run((tenant, subject))
            key_id, cipher = stored_key.id, self._unwrap_and_cache(stored_key)
        nonce = os.urandom(NONCE_BYTES)
        return key_id, nonce + cipher.encrypt(nonce, payload, context)

    async def prefetch(self, keys: Iterable[UUID]) -> None:
        missing_keys = [key for key in keys if key not in self._cached_ciphers]
        for stored_key in (
            (await self._keystore.fetch(missing_keys)).values() if missing_keys else ()
        ):
            with suppress(PermanentError):  # `open` raises it again
                self._unwrap_and_cache(stored_key)

    async def open(self, key: UUID, payload: bytes, *, context: bytes) -> bytes:
        cipher = await self._get_cipher(key)
        try:
            return cipher.decrypt(payload[:NONCE_BYTES], payload[NONCE_BYTES:], context)
        except (InvalidTag, ValueError) as error:
            raise PermanentError(
                f"A payload sealed with key {key} was changed: authentication failed.",
                code=TAMPERED,
            ) from error

    async def _get_cipher(self, key: UUID) -> AESGCM:
        if (cached := self._cached_ciphers.get(key)) is not None:
            return cached
        stored_key = await self._key_lookups.run(key)
        if stored_key is None:
            raise PermanentError(
                f"The keystore has no key {key}.",
                code=KEY_MISSING,
                remedy="Restore the newest backup of the schema `keystore`.",
            )
        return self._unwrap_and_cache(stored_key)

    def _unwrap_and_cache(self, stored_key: StoredKey) -> AESGCM:
        if stored_key.wrapped_key is None:
            self._cached_ciphers.pop(stored_key.id, None)
            # Not a failure: callers skip the event, and write nothing of it.
            raise DataErased(f"Key {stored_key.id} was destroyed.")
        cipher = AESGCM(self._wrapper.unwrap(stored_key))
        self._cached_ciphers[stored_key.id] = cipher
        return cipher

    async def _fetch_keys(self, keys: Sequence[UUID]) -> list[StoredKey | None]:
        stored_keys = await self._keystore.fetch(list(dict.fromkeys(keys)))
        return [stored_keys.get(key) for key in keys]

    async def _obtain_keys(self, subjects: Sequence[tuple[str, UUID]]) -> list[StoredKey]:
        """Return the keys of (tenant, subject), creating missing ones."""
        # Off the event loop: shares are synced to disk.
        new_keys = await asyncio.to_thread(
            self._wrapper.generate_keys, list(dict.fromkeys(subjects))
        )
        stored_keys = await self._keystore.get_or_create(new_keys)
        # Another process may have created a key for the same subject first; the keystore returns
        # that one.
        self._wrapper.release_shares(set(new_keys) - set(stored_keys))
        by_subject = {(key.tenant, key.subject): key for key in stored_keys}
        return [by_subject[subject] for subject in subjects]


class KeyWrapper:
    """Wraps keys with the master key and, if `shares` is given, one share per key.

    Deleting a share makes its key unrecoverable, also from backups of the database.
    """

    def __init__(self, master_key: bytes, shares: KeyShares | None) -> None:
        self._master, self._shares = master_key, shares

    def generate_keys(self, subjects: Sequence[tuple[str, UUID]]) -> list[StoredKey]:
        """Generate and wrap new keys. Blocks on disk if shares are written."""
        slots: Sequence[tuple[int | None, bytes]] = (
            self._shares.allocate(len(subjects)) if self._shares else [(None, b"")] * len(subjects)
        )
        return [
            self.wrap(
                StoredKey(uuid4(), tenant, subject, None, slot=slot),
                AESGCM.generate_key(8 * KEY_BYTES),
                share,
            )
            for (tenant, subject), (slot, share) in zip(subjects, slots, strict=True)
        ]

    def release_shares(self, unused_keys: Iterable[StoredKey]) -> None:
        """Release the shares of generated keys that the keystore did not store."""
        if self._shares:
            self._shares.release(
                [
                    (key.slot, share)
                    for key in unused_keys
                    if key.slot is not None and (share := self._shares.read(key.slot))
                ]
            )

    def wrap(self, stored_key: StoredKey, key: bytes, share: bytes) -> StoredKey:
        nonce = os.urandom(NONCE_BYTES)
        return replace(
            stored_key,
            wrapped_key=nonce
            + self._build_cipher(share).encrypt(nonce, key, _build_associated_data(stored_key)),
        )

    def rewrap(self, stored_key: StoredKey, key: bytes) -> StoredKey:
        """Wrap a key with its existing share, or with a new one if it has none (older versions)."""
        if self._shares is None:
            return self.wrap(stored_key, key, b"")
        if stored_key.slot is not None and (share := self._shares.read(stored_key.slot)):
            return self.wrap(stored_key, key, share)
        [(slot, share)] = self._shares.allocate(1)
        return self.wrap(replace(stored_key, slot=slot), key, share)

    def unwrap(self, stored_key: StoredKey) -> bytes:
        """Unwrap a key. Raises KeyLost if its share is missing, PermanentError if the master key is
        wrong.
        """
        assert stored_key.wrapped_key is not None
        share = b""
        if stored_key.slot is not None:
            stored_share = self._shares.read(stored_key.slot) if self._shares else None
            if stored_share is None:
                raise KeyLost(f"Key {stored_key.id} has no share in the key file.")
            share = stored_share
        try:
            return self._build_cipher(share).decrypt(
                stored_key.wrapped_key[:NONCE_BYTES],
                stored_key.wrapped_key[NONCE_BYTES:],
                _build_associated_data(stored_key),
            )
        except InvalidTag as error:
            remedy = (
                "Set ANABRANCH_LOG__MASTER_KEY and ANABRANCH_LOG__KEY_FILE to the master key and "
                "key file that the keystore was created with."
            )
            raise PermanentError(
                f"Key {stored_key.id} cannot be unwrapped with this master key.",
                code="WRONG_MASTER_KEY",
                remedy=remedy,
            ) from error

    def _build_cipher(self, share: bytes) -> AESGCM:
        return AESGCM(
            hmac.digest(self._master, b"anabranch key share" + share, "sha256")
            if share
            else self._master
        )


def _build_associated_data(stored_key: StoredKey) -> bytes:
    """Bind a wrapped key to its row.

    Keys without a share are bound to their id only, as older versions wrote them.
    """
    return (
        stored_key.id.bytes
        if stored_key.slot is None
        else f"{stored_key.id} {stored_key.tenant} {stored_key.subject} {stored_key.slot}".encode()
    )


def wrap_signing_key(master_key: bytes, name: str, key: bytes) -> bytes:
    """Encrypt the signing key of an earlier master key (`name` is its fingerprint) under the
    current one.
    """
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(master_key).encrypt(nonce, key, f"signing key {name}".encode())


def unwrap_signing_key(master_key: bytes, name: str, wrapped: bytes) -> bytes:
    return AESGCM(master_key).decrypt(
        wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], f"signing key {name}".encode()
    )


def compute_master_key_fingerprint(master_key: bytes) -> str:
    return sha256_hex(b"master key" + master_key)[:16]


class PlainKeys:
    """A `PayloadCipher` without encryption."""

    async def seal(
        self, tenant: str, subject: UUID, payload: bytes, *, context: bytes, key: UUID | None
    ) -> None:
        return None

    async def prefetch(self, keys: Iterable[UUID]) -> None:
        """Do nothing."""

    async def open(self, key: UUID, payload: bytes, *, context: bytes) -> bytes:
        raise PermanentError(
            "The payload is sealed, and this process has no keystore.",
            code="KEY_MISSING",
            remedy="Read it in a process that has the keystore.",
        )
