"""Load the chunks of one channel's hits while other channels still search."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from schemas.ports.search import ChunkView, Hit, IndexSnapshot


class ChunkLoader:
    def __init__(self, snapshot: IndexSnapshot) -> None:
        self._snapshot = snapshot
        self._requested_ids: set[UUID] = set()
        self._tasks: list[asyncio.Task[Mapping[UUID, ChunkView]]] = []

    def load_hits(self, hits: Sequence[Hit]) -> None:
        """Start loading the chunks of `hits` that are not loading yet."""
        new_ids = {hit.chunk_id for hit in hits} - self._requested_ids
        if new_ids:
            self._requested_ids |= new_ids
            self._tasks.append(asyncio.create_task(self._fetch_chunks(list(new_ids))))

    async def wait_for_chunks(self) -> dict[UUID, ChunkView]:
        """Wait for every started load and return the visible chunks. Raises DatabaseUnavailable."""
        return {
            chunk_id: view
            for loaded_chunks in await asyncio.gather(*self._tasks)
            for chunk_id, view in loaded_chunks.items()
        }

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fetch_chunks(self, ids: Sequence[UUID]) -> Mapping[UUID, ChunkView]:
        return await self._snapshot.fetch_chunks(ids)


@asynccontextmanager
async def open_chunk_loader(snapshot: IndexSnapshot) -> AsyncIterator[ChunkLoader]:
    """Open a loader whose pending loads are cancelled on exit."""
    loader = ChunkLoader(snapshot)
    try:
        yield loader
    finally:
        await loader.close()
