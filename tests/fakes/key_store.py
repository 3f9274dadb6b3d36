"""A key store in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from schemas.errors import DatabaseUnavailable
from schemas.ports.keys import StoredKey

MASTER_KEY = os.urandom(32)


class MemoryKeyStore:
    """In-memory keystore that counts its calls."""

    def __init__(self) -> None:
        self.keys: dict[UUID, StoredKey] = {}
        self.call_count = 0
        self.unavailable = False

    async def get_or_create(self, proposed: Sequence[StoredKey]) -> list[StoredKey]:
        await self._answer()
        found = []
        for key in proposed:
            current = next(
                (
                    stored
                    for stored in self.keys.values()
                    if stored.subject == key.subject and stored.wrapped_key
                ),
                key,
            )
            self.keys[current.id] = current
            found.append(current)
        return found

    async def fetch(self, ids: Sequence[UUID]) -> Mapping[UUID, StoredKey]:
        await self._answer()
        return {identity: self.keys[identity] for identity in ids if identity in self.keys}

    async def fetch_current_ids(self, tenant: str, subjects: Sequence[UUID]) -> list[UUID]:
        return [key.id for key in self.keys.values() if key.wrapped_key and key.subject in subjects]

    async def destroy(self, tenant: str, keys: Iterable[UUID]) -> None:
        for key in keys:
            self.keys[key] = replace(self.keys[key], wrapped_key=None)

    async def _answer(self) -> None:
        self.call_count += 1
        if self.unavailable:
            raise DatabaseUnavailable("away")
