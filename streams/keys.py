"""Sealing of payloads: AES-256-GCM (NIST SP 800-38D) with a key for each document and run, each wrapped by the master key and a share of its own."""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar
from uuid import UUID, uuid4

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from schemas.errors import DatabaseUnavailable, Erased, KeyLost, PermanentError
from schemas.ids import sha256_hex
from schemas.ports.keys import TAMPERED, Keystore, Shares, StoredKey

KEY_BYTES = 32
NONCE_BYTES = 12
KEY_MISSING = "KEY_MISSING"
"""Code of what was sealed with a key that the keystore does not have."""
REMEMBERED = 20_000
REMEMBERED_S = 2.0
"""For so long after its destruction a key may still open what a process reads."""
A = TypeVar("A", bound=Hashable)
B = TypeVar("B")


@dataclass(slots=True)
class Together(Generic[A, B]):
    """Asks for many things at once: what is wanted in one turn of the event loop is one call."""

    ask: Callable[[Sequence[A]], Awaitable[Mapping[A, B]]]
    wanted: dict[A, asyncio.Future[B | None]] = field(default_factory=dict)
    asking: set[asyncio.Task[None]] = field(default_factory=set)

    async def __call__(self, item: A) -> B | None:
        if item not in self.wanted:
            if not self.wanted:
                task = asyncio.create_task(self._ask())
                self.asking.add(task)
                task.add_done_callback(self.asking.discard)
            self.wanted[item] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self.wanted[item])

    async def _ask(self) -> None:
        await asyncio.sleep(0)
        wanted, self.wanted = self.wanted, {}
        try:
            found = await self.ask(list(wanted))
        except BaseException as error:
            for future in wanted.values():
                future.set_exception(error if isinstance(error, Exception) else DatabaseUnavailable("what was asked for together was broken off"))
                future.exception()  # whoever asked may be gone
            if not isinstance(error, Exception):
                raise
        else:
            for item, future in wanted.items():
                future.set_result(found.get(item))


class SealingKeys:
    """Keys over a keystore. Of one event loop. `plain` says whose payloads stay readable. Without `shares` the master key alone wraps new keys."""

    def __init__(self, keystore: Keystore, master: bytes, *, shares: Shares | None = None, plain: Callable[[str], bool] = lambda tenant: False) -> None:
        self._keystore, self._plain = keystore, plain
        self._wrapping = Wrapping(master, shares)
        self._known: OrderedDict[UUID, tuple[float, AESGCM]] = OrderedDict()
        self._find: Together[UUID, StoredKey] = Together(keystore.find)
        self._obtain: Together[tuple[str, UUID], StoredKey] = Together(self._obtained)

    async def seal(self, tenant: str, subject: UUID, payload: bytes, *, context: bytes, key: UUID | None) -> tuple[UUID, bytes] | None:
        if key is None and self._plain(tenant):
            return None
        identity, cipher = (key, await self._cipher(key)) if key else await self._current(tenant, subject)
        nonce = os.urandom(NONCE_BYTES)
        return identity, nonce + cipher.encrypt(nonce, payload, context)

    async def fetch(self, keys: Iterable[UUID]) -> None:
        unknown = [key for key in keys if not self._is_known(key)]
        for stored in (await self._keystore.find(unknown)).values() if unknown else ():
            with suppress(PermanentError):  # whoever opens something with it is told
                self._opened(stored)

    async def open(self, key: UUID, payload: bytes, *, context: bytes) -> bytes:
        cipher = await self._cipher(key)
        try:
            return cipher.decrypt(payload[:NONCE_BYTES], payload[NONCE_BYTES:], context)
        except (InvalidTag, ValueError) as error:
            raise PermanentError(f"a payload does not open with its key {key}: it was changed", code=TAMPERED) from error

    async def _current(self, tenant: str, subject: UUID) -> tuple[UUID, AESGCM]:
        """Asked each time: a key that is destroyed meanwhile must not seal what comes after."""
        stored = await self._obtain((tenant, subject))
        assert stored is not None, "the keystore answers for every subject"
        return stored.id, self._opened(stored)

    async def _cipher(self, key: UUID) -> AESGCM:
        if self._is_known(key):
            return self._known[key][1]
        stored = await self._find(key)
        if stored is None:
            raise PermanentError(f"the keystore has no key {key}", code=KEY_MISSING, remedy="Restore the newest backup of the schema `keystore`.")
        return self._opened(stored)

    def _is_known(self, key: UUID) -> bool:
        return key in self._known and self._known[key][0] > time.monotonic()

    def _opened(self, stored: StoredKey) -> AESGCM:
        if stored.wrapped is None:
            self._known.pop(stored.id, None)
            raise KeyLost(f"key {stored.id} is in no backup of the keystore") if stored.lost else Erased(f"key {stored.id} was destroyed")
        cipher = AESGCM(self._wrapping.unwrap(stored))
        self._known[stored.id] = (time.monotonic() + REMEMBERED_S, cipher)
        self._known.move_to_end(stored.id)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return cipher

    async def _obtained(self, subjects: Sequence[tuple[str, UUID]]) -> Mapping[tuple[str, UUID], StoredKey]:
        proposed = await asyncio.to_thread(self._wrapping.propose, subjects)
        found = await self._keystore.obtain(proposed)
        self._wrapping.give_back(set(proposed) - set(found))
        return {(stored.tenant, stored.subject): stored for stored in found}


class Wrapping:
    """Wraps keys with a master key and, where there are shares, with one share for each key: without its share a wrapped key is noise."""

    def __init__(self, master: bytes, shares: Shares | None) -> None:
        self._master, self._shares = master, shares

    def propose(self, subjects: Sequence[tuple[str, UUID]]) -> list[StoredKey]:
        """New keys. Blocks where shares are written."""
        slots: Sequence[tuple[int | None, bytes]] = self._shares.take(len(subjects)) if self._shares else [(None, b"")] * len(subjects)
        return [
            self.wrap(StoredKey(uuid4(), tenant, subject, None, slot=slot), AESGCM.generate_key(8 * KEY_BYTES), share)
            for (tenant, subject), (slot, share) in zip(subjects, slots, strict=True)
        ]

    def give_back(self, unused: Iterable[StoredKey]) -> None:
        """Proposals in whose place the keystore had another key."""
        if self._shares:
            self._shares.give_back([(key.slot, share) for key in unused if key.slot is not None and (share := self._shares.read(key.slot))])

    def wrap(self, stored: StoredKey, key: bytes, share: bytes) -> StoredKey:
        nonce = os.urandom(NONCE_BYTES)
        return replace(stored, wrapped=nonce + self._cipher(share).encrypt(nonce, key, _bound(stored)))

    def rewrap(self, stored: StoredKey, key: bytes) -> StoredKey:
        """With the same share; a key of an older version gets one."""
        if self._shares is None:
            return self.wrap(stored, key, b"")
        if stored.slot is not None and (share := self._shares.read(stored.slot)):
            return self.wrap(stored, key, share)
        [(slot, share)] = self._shares.take(1)
        return self.wrap(replace(stored, slot=slot), key, share)

    def unwrap(self, stored: StoredKey) -> bytes:
        """Raises KeyLost where its share is gone, PermanentError where the master key is another."""
        assert stored.wrapped is not None
        share = b""
        if stored.slot is not None:
            found = self._shares.read(stored.slot) if self._shares else None
            if found is None:
                raise KeyLost(f"key {stored.id} has no share in the key file")
            share = found
        try:
            return self._cipher(share).decrypt(stored.wrapped[:NONCE_BYTES], stored.wrapped[NONCE_BYTES:], _bound(stored))
        except InvalidTag as error:
            remedy = "Give this process the master key and the key file that the keystore was made with (ANABRANCH_LOG__MASTER_KEY, ANABRANCH_LOG__KEY_FILE)."
            raise PermanentError(f"key {stored.id} does not open with this master key", code="WRONG_MASTER_KEY", remedy=remedy) from error

    def _cipher(self, share: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self._master, b"anabranch key share" + share, "sha256") if share else self._master)


def _bound(stored: StoredKey) -> bytes:
    """What a wrapped key is bound to, so that it opens in no other row. Without a share: as older versions wrapped it."""
    return stored.id.bytes if stored.slot is None else f"{stored.id} {stored.tenant} {stored.subject} {stored.slot}".encode()


def wrap_signing_key(master: bytes, name: str, key: bytes) -> bytes:
    """A key that verifies what the master key of this fingerprint signed, under a later master key."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(master).encrypt(nonce, key, f"signing key {name}".encode())


def unwrap_signing_key(master: bytes, name: str, wrapped: bytes) -> bytes:
    return AESGCM(master).decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], f"signing key {name}".encode())


def fingerprint(master: bytes) -> str:
    """Of a master key, to be shown and compared."""
    return sha256_hex(b"master key" + master)[:16]
