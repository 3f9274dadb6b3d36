"""Token states of passages, read in ranges from the blobs where `embed` left them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.errors import AnabranchError
from schemas.ports.engines import Blobs
from schemas.ports.search import ChunkView

States = tuple[NDArray[np.int8], NDArray[np.int32]]
Unpack = Callable[[bytes], States]
"""Bytes as stored → (states [tokens, dimension], token ids [tokens]). Raises ValueError for other bytes."""
Place = tuple[str, int, int]

CACHE_BYTES = 64 * 1024 * 1024


class StateReader:
    """Reads what is not in its cache (least recently used goes first), all ranges of a blob in one call."""

    def __init__(self, blobs: Blobs, unpack: Unpack, cache_bytes: int = CACHE_BYTES) -> None:
        self._blobs, self._unpack, self._limit = blobs, unpack, cache_bytes
        self._cache: OrderedDict[Place, States] = OrderedDict()
        self._held = 0

    async def read(self, chunks: Sequence[ChunkView]) -> dict[UUID, States]:
        """States by chunk. A chunk without states, or whose blob is gone or does not answer, is left out."""
        wanted = {chunk.chunk_id: chunk.states for chunk in chunks if chunk.states is not None and chunk.states[2] > 0}
        missing = [place for place in dict.fromkeys(wanted.values()) if place not in self._cache]
        fresh = await self._fetch(missing)
        found = {chunk_id: fresh.get(place) or self._cached(place) for chunk_id, place in wanted.items()}
        for place, states in fresh.items():
            self._keep(place, states)
        return {chunk_id: states for chunk_id, states in found.items() if states is not None}

    async def _fetch(self, places: Sequence[Place]) -> dict[Place, States]:
        by_blob: dict[str, list[Place]] = {}
        for place in places:
            by_blob.setdefault(place[0], []).append(place)
        parts = await asyncio.gather(*(self._fetch_blob(key, of_blob) for key, of_blob in by_blob.items()))
        return {place: states for part in parts for place, states in part.items()}

    async def _fetch_blob(self, key: str, places: Sequence[Place]) -> Mapping[Place, States]:
        try:
            data = await self._blobs.get_ranges(key, [(offset, length) for _, offset, length in places])
            return {place: self._unpack(item) for place, item in zip(places, data, strict=True)}
        except (AnabranchError, ValueError):
            return {}

    def _cached(self, place: Place) -> States | None:
        if place in self._cache:
            self._cache.move_to_end(place)
        return self._cache.get(place)

    def _keep(self, place: Place, states: States) -> None:
        self._cache[place] = states
        self._held += place[2]
        while self._held > self._limit and self._cache:
            (_, _, length), _ = self._cache.popitem(last=False)
            self._held -= length
