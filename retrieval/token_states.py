"""Read token states of passages in byte ranges from the blobs that the embed stage wrote."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from schemas.errors import AnabranchError
from schemas.ports.engines import BlobStore
from schemas.ports.search import ChunkView

TokenStates = tuple[NDArray[np.int8], NDArray[np.int32]]
# Stored bytes → (states [tokens, dimension], token ids [tokens]). Raises ValueError for other
# bytes.
UnpackTokenStates = Callable[[bytes], TokenStates]
# Blob key, offset, length.
StatesLocation = tuple[str, int, int]

CACHE_BYTES = 64 * 1024 * 1024


class TokenStateReader:
    """Read token states through an LRU cache, with one call for all ranges of a blob."""

    def __init__(
        self, blobs: BlobStore, unpack: UnpackTokenStates, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._blobs, self._unpack, self._max_cached_bytes = blobs, unpack, cache_bytes
        self._cache: OrderedDict[StatesLocation, TokenStates] = OrderedDict()
        self._cached_bytes = 0

    async def read(self, chunks: Sequence[ChunkView]) -> dict[UUID, TokenStates]:
        """Return states by chunk id.

        Chunks without states, or whose blob is missing or unavailable, are left out.
        """
        location_by_chunk = {
            chunk.chunk_id: chunk.states
            for chunk in chunks
            if chunk.states is not None and chunk.states[2] > 0
        }
        missing_locations = [
            location
            for location in dict.fromkeys(location_by_chunk.values())
            if location not in self._cache
        ]
        fetched_states = await self._fetch_states(missing_locations)
        states_by_chunk = {
            chunk_id: fetched_states.get(location) or self._get_cached(location)
            for chunk_id, location in location_by_chunk.items()
        }
        for location, states in fetched_states.items():
            self._store(location, states)
        return {
            chunk_id: states for chunk_id, states in states_by_chunk.items() if states is not None
        }

    async def _fetch_states(
        self, locations: Sequence[StatesLocation]
    ) -> dict[StatesLocation, TokenStates]:
        by_blob: dict[str, list[StatesLocation]] = {}
        for location in locations:
            by_blob.setdefault(location[0], []).append(location)
        parts = await asyncio.gather(
            *(self._fetch_blob(key, blob_locations) for key, blob_locations in by_blob.items())
        )
        return {location: states for part in parts for location, states in part.items()}

    async def _fetch_blob(
        self, key: str, locations: Sequence[StatesLocation]
    ) -> Mapping[StatesLocation, TokenStates]:
        try:
            data = await self._blobs.get_ranges(
                key, [(offset, length) for _, offset, length in locations]
            )
            return {
                location: self._unpack(item) for location, item in zip(locations, data, strict=True)
            }
        except (AnabranchError, ValueError):
            return {}

    def _get_cached(self, location: StatesLocation) -> TokenStates | None:
        if location in self._cache:
            self._cache.move_to_end(location)
        return self._cache.get(location)

    def _store(self, location: StatesLocation, states: TokenStates) -> None:
        self._cache[location] = states
        self._cached_bytes += location[2]
        while self._cached_bytes > self._max_cached_bytes and self._cache:
            (_, _, length), _ = self._cache.popitem(last=False)
            self._cached_bytes -= length
