"""Compute the vectors of chunks. Projects parent and child chunks."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from processors.outcomes import make_final_outcomes
from schemas.events import (
    ChunksEmbedded,
    DocumentChunked,
    DocumentIndexed,
    DocumentSuperseded,
    Event,
)
from schemas.ids import make_blob_key, sha256_hex
from schemas.ports.engines import TextEmbedding
from schemas.ports.ledger import ClaimStatus, MemoKey, OrderingPolicy
from schemas.ports.stage_ports import StagePorts
from schemas.rows import ChildRow, ParentRow, PartCompletedRow, Row, copy_row
from schemas.topics import CHUNKED
from schemas.values import ChildChunk, ChunkVector, format_embedding_text
from streams.stage import Emission, PendingEvent, Stage, build_memo_key, memoize

VERSION = 1
# Little-endian, so that cached bytes mean the same on every machine.
_HEADER = struct.Struct("<IIff")
"""Lengths of the vector and of the states, background_dense, background_maxsim (NaN for None)."""


def project(event: Event[DocumentChunked]) -> Iterable[Row]:
    data = event.data
    revision: dict[str, Any] = {
        "document_id": data.document_id,
        "order": tuple(data.order),
        "tenant": data.tenant,
    }
    for parent in data.parents:
        yield copy_row(ParentRow, parent, pages=tuple(parent.pages), **revision)
        for child in parent.children:
            spans = [span.model_dump(exclude_none=True) for span in child.spans]
            yield copy_row(
                ChildRow,
                child,
                parent_id=parent.id,
                spans=spans,
                language=data.language,
                **revision,
            )
    yield PartCompletedRow(kind="chunks", part=data.part, parts=data.parts, **revision)


@dataclass(frozen=True, slots=True)
class _CachedEmbedding:
    """A chunk's entry in the engine result cache: vector bytes, packed token states and background
    scores.
    """

    vector: bytes
    states: bytes
    background_dense: float | None
    background_maxsim: float | None

    @classmethod
    def from_embedding(cls, embedding: TextEmbedding) -> _CachedEmbedding:
        # The event and `halfvec` hold float16 too, so the cache loses nothing that is kept
        # elsewhere.
        return cls(
            embedding.vector.astype("<f2").tobytes(),
            embedding.states or b"",
            embedding.background_dense,
            embedding.background_maxsim,
        )

    def to_bytes(self) -> bytes:
        dense, maxsim = (
            float("nan") if value is None else value
            for value in (self.background_dense, self.background_maxsim)
        )
        return (
            _HEADER.pack(len(self.vector), len(self.states), dense, maxsim)
            + self.vector
            + self.states
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> _CachedEmbedding:
        vector_bytes, state_bytes, dense, maxsim = _HEADER.unpack_from(data)
        states_start = _HEADER.size + vector_bytes
        return cls(
            vector=data[_HEADER.size : states_start],
            states=data[states_start : states_start + state_bytes],
            background_dense=None if np.isnan(dense) else dense,
            background_maxsim=None if np.isnan(maxsim) else maxsim,
        )


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    """Embed all chunks of the group with one cache lookup and one call of the batching engine."""
    emissions = [
        emission
        for pending_event in pending_events
        for emission in make_final_outcomes(pending_event)
    ]
    events: list[Event[DocumentChunked]] = [
        pending_event.event
        for pending_event in pending_events
        # Its outcome is above; vectors of a superseded revision would never be searched.
        if pending_event.status is not ClaimStatus.SUPERSEDED
    ]
    chunks = [(event.data, child) for event in events for child in _list_children(event.data)]
    embeddings = iter(await _embed_chunks(chunks, ports))
    for event in events:
        # `embeddings` is in the order of `chunks`, so each event takes its own share.
        embedding_by_chunk = {child.id: next(embeddings) for child in _list_children(event.data)}
        emissions.append(
            Emission(
                event, await _build_embedded_event(event.data, embedding_by_chunk, ports), ordinal=1
            )
        )
    return emissions


def _list_children(data: DocumentChunked) -> list[ChildChunk]:
    return [child for parent in data.parents for child in parent.children]


def make_embedding_key(tenant: str, document_id: UUID, child: ChildChunk, engine: str) -> MemoKey:
    """Return the cache key of a chunk's embedding by the engine with this fingerprint."""
    return build_memo_key(
        tenant, document_id, engine, format_embedding_text(child.prefix, child.text).encode()
    )


async def _embed_chunks(
    chunks: Sequence[tuple[DocumentChunked, ChildChunk]], ports: StagePorts
) -> list[_CachedEmbedding]:
    texts = [format_embedding_text(child.prefix, child.text) for _, child in chunks]

    async def embed(positions: list[int]) -> list[bytes]:
        embeddings = await ports.embedder.embed([texts[position] for position in positions])
        return [_CachedEmbedding.from_embedding(embedding).to_bytes() for embedding in embeddings]

    keys = [
        make_embedding_key(data.tenant, data.document_id, child, ports.embedder.fingerprint)
        for data, child in chunks
    ]
    return [
        _CachedEmbedding.from_bytes(cached_bytes)
        for cached_bytes in await memoize(ports.memo, keys, embed)
    ]


async def _build_embedded_event(
    data: DocumentChunked, embeddings: dict[UUID, _CachedEmbedding], ports: StagePorts
) -> ChunksEmbedded:
    # One blob per part, with the states of its chunks in the order of the vectors.
    states = b"".join(embedding.states for embedding in embeddings.values())
    vectors, state_offset = list[ChunkVector](), 0
    for chunk_id, embedding in embeddings.items():
        vectors.append(
            ChunkVector(
                chunk_id=chunk_id,
                vector=base64.b64encode(embedding.vector).decode(),
                state_offset=state_offset,
                state_length=len(embedding.states),
                background_dense=embedding.background_dense,
                background_maxsim=embedding.background_maxsim,
            )
        )
        state_offset += len(embedding.states)
    blob = (
        await ports.blobs.put(
            # The key contains the hash, so a repeated reaction writes the same blob.
            make_blob_key(data.tenant, data.document_id, sha256_hex(states)),
            states,
        )
        if states
        else None
    )
    return ChunksEmbedded(
        tenant=data.tenant,
        document_id=data.document_id,
        order=data.order,
        origin=data.origin,
        part=data.part,
        parts=data.parts,
        model=ports.embedder.model,
        dimension=ports.embedder.dimension,
        vectors=vectors,
        states=blob,
        state_dimension=ports.embedder.state_dimension,
    )


STAGE = Stage(
    "embed",
    CHUNKED,
    VERSION,
    ordering_policy=OrderingPolicy.VISIBLE,
    project=project,
    react=react,
    batch_size=16,
    emits=(ChunksEmbedded, DocumentIndexed, DocumentSuperseded),
)
