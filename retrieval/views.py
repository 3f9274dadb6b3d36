"""The chunks that a question's channels bring, read as they come: what one channel has found is looked up while another still searches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from schemas.ports.search import ChunkView, Hit, Snapshot


class Views:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._begun: set[UUID] = set()
        self._reading: list[asyncio.Task[Mapping[UUID, ChunkView]]] = []

    def begin(self, hits: Sequence[Hit]) -> None:
        """Each chunk is read once, however many channels bring it."""
        new = {hit.chunk_id for hit in hits} - self._begun
        if new:
            self._begun |= new
            self._reading.append(asyncio.create_task(self._read(list(new))))

    async def all(self) -> dict[UUID, ChunkView]:
        """All that was begun and is visible. Raises DatabaseUnavailable."""
        return {chunk_id: view for found in await asyncio.gather(*self._reading) for chunk_id, view in found.items()}

    async def close(self) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def _read(self, ids: Sequence[UUID]) -> Mapping[UUID, ChunkView]:
        return await self._snapshot.chunks(ids)


@asynccontextmanager
async def reading(snapshot: Snapshot) -> AsyncIterator[Views]:
    """Nothing is read any longer when it ends."""
    views = Views(snapshot)
    try:
        yield views
    finally:
        await views.close()
