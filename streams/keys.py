"""Sealing of payloads: AES-256-GCM (NIST SP 800-38D) with a key for each document and run, each wrapped by one master key."""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from uuid import UUID, uuid4

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from schemas.errors import DatabaseUnavailable, Erased, KeyLost, PermanentError
from schemas.ids import sha256_hex
from schemas.ports.keys import Keystore, StoredKey

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
    """Keys over a keystore. Of one event loop. `plain` says whose payloads stay readable."""

    def __init__(self, keystore: Keystore, master: bytes, *, plain: Callable[[str], bool] = lambda tenant: False) -> None:
        self._keystore, self._plain = keystore, plain
        self._master = AESGCM(master)
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
            raise PermanentError(f"a payload does not open with its key {key}: it was changed", code="TAMPERED") from error

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
        cipher = AESGCM(self._unwrapped(stored.id, stored.wrapped))
        self._known[stored.id] = (time.monotonic() + REMEMBERED_S, cipher)
        self._known.move_to_end(stored.id)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return cipher

    async def _obtained(self, subjects: Sequence[tuple[str, UUID]]) -> Mapping[tuple[str, UUID], StoredKey]:
        found = await self._keystore.obtain([self._proposed(tenant, subject) for tenant, subject in subjects])
        return {(stored.tenant, stored.subject): stored for stored in found}

    def _proposed(self, tenant: str, subject: UUID) -> StoredKey:
        identity, nonce = uuid4(), os.urandom(NONCE_BYTES)
        wrapped = nonce + self._master.encrypt(nonce, AESGCM.generate_key(8 * KEY_BYTES), identity.bytes)
        return StoredKey(identity, tenant, subject, wrapped)

    def _unwrapped(self, identity: UUID, wrapped: bytes) -> bytes:
        try:
            return self._master.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], identity.bytes)
        except InvalidTag as error:
            remedy = "Give this process the master key that the keystore was made with (ANABRANCH_LOG__MASTER_KEY)."
            raise PermanentError(f"key {identity} does not open with this master key", code="WRONG_MASTER_KEY", remedy=remedy) from error


def fingerprint(master: bytes) -> str:
    """Of a master key, to be shown and compared."""
    return sha256_hex(b"master key" + master)[:16]
