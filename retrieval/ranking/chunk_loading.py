"""Load the chunks of the channels' hits while other channels still search."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from schemas.ports.search import ChunkView, Hit, IndexSnapshot


class ChunkLoader:
    """Load the chunks of one channel's hits while other channels still search."""

    def __init__(self, snapshot: IndexSnapshot, question: str) -> None:
        self._snapshot, self._question = snapshot, question
        self._requested_ids: set[UUID] = set()
        self._tasks: list[asyncio.Task[Mapping[UUID, ChunkView]]] = []

    def load_hits(self, hits: Sequence[Hit]) -> None:
        """Start loading the chunks of `hits` that are not loading yet."""
        # Channels find the same chunks; each is loaded once.
        new_ids = {hit.chunk_id for hit in hits} - self._requested_ids
        if new_ids:
            self._requested_ids |= new_ids
            self._tasks.append(
                asyncio.ensure_future(self._snapshot.fetch_chunks(list(new_ids), self._question))
            )

    async def wait_for_chunks(self) -> dict[UUID, ChunkView]:
        """Wait for every started load and return the visible chunks. Raises DatabaseUnavailable."""
        return {
            chunk_id: view
            for loaded_chunks in await asyncio.gather(*self._tasks)
            for chunk_id, view in loaded_chunks.items()
        }

    async def close(self) -> None:
        # Running loads hold connections of the snapshot, which closes next.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def open_chunk_loader(snapshot: IndexSnapshot, question: str) -> AsyncIterator[ChunkLoader]:
    """Open a loader whose pending loads are cancelled on exit."""
    loader = ChunkLoader(snapshot, question)
    try:
        yield loader
    finally:
        await loader.close()
