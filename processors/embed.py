"""Chunks to vectors. Projects parents and children."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from engines.embed.states import pack_states
from processors.outcomes import endings
from schemas.events import ChunksEmbedded, DocumentChunked, Fact
from schemas.ids import sha256_hex
from schemas.ports.bundle import Ports, blob_key
from schemas.ports.engines import Embedded
from schemas.ports.ledger import Claim, MemoKey
from schemas.rows import ChildRow, ParentRow, Row, SettledRow
from schemas.values import ChildChunk, ChunkVector
from streams.memo import memo_key, remembered
from streams.stage import Counted, Stage, Statement
from streams.topics import CHUNKED, EMBEDDED

VERSION = 1
_HEAD = struct.Struct("<IIff")


def project(fact: Fact[DocumentChunked]) -> Iterable[Row]:
    data, order = fact.data, tuple(fact.data.order)
    for parent in data.parents:
        yield ParentRow(
            id=parent.id,
            document_id=data.document_id,
            order=order,
            tenant=data.tenant,
            ordinal=parent.ordinal,
            text=parent.text,
            section=parent.section,
            char_start=parent.char_start,
            char_end=parent.char_end,
            pages=tuple(parent.pages),
            tokens=parent.tokens,
        )
        for child in parent.children:
            yield ChildRow(
                id=child.id,
                parent_id=parent.id,
                document_id=data.document_id,
                order=order,
                tenant=data.tenant,
                ordinal=child.ordinal,
                kind=child.kind,
                text=child.text,
                prefix=child.prefix,
                char_start=child.char_start,
                char_end=child.char_end,
                spans=[span.model_dump(exclude_none=True) for span in child.spans],
                tokens=child.tokens,
                language=data.language,
            )
    yield SettledRow(data.document_id, order, data.tenant, "chunks", data.part, data.parts)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the memo keeps of one chunk: the vector's bytes, its packed states, and the two background scores."""

    vector: bytes
    states: bytes
    background_dense: float | None
    background_maxsim: float | None

    @classmethod
    def of(cls, embedded: Embedded) -> _Answer:
        packed = b"" if embedded.states is None or embedded.token_ids is None else pack_states(embedded.states, embedded.token_ids)
        return cls(embedded.vector.astype("<f2").tobytes(), packed, embedded.background_dense, embedded.background_maxsim)

    def to_bytes(self) -> bytes:
        dense, maxsim = (float("nan") if value is None else value for value in (self.background_dense, self.background_maxsim))
        return _HEAD.pack(len(self.vector), len(self.states), dense, maxsim) + self.vector + self.states

    @classmethod
    def from_bytes(cls, data: bytes) -> _Answer:
        vector, states, dense, maxsim = _HEAD.unpack_from(data)
        start = _HEAD.size
        return cls(
            data[start : start + vector], data[start + vector : start + vector + states], *(None if np.isnan(value) else value for value in (dense, maxsim))
        )


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    """All chunks of the group are asked for in one go: memo first, the rest in one call; the engine batches."""
    said = [statement for item in counted for statement in endings(item)]
    fresh = [item for item in counted if item.claim is not Claim.SUPERSEDED]
    answers = iter(await _answers([(item.fact.data, child) for item in fresh for child in _children(item.fact.data)], ports))
    for item in fresh:
        data: DocumentChunked = item.fact.data
        said.append(Statement(item.fact, await _embedded(data, {child.id: next(answers) for child in _children(data)}, ports), ordinal=1))
    return said


def _children(data: DocumentChunked) -> list[ChildChunk]:
    return [child for parent in data.parents for child in parent.children]


def embedded_text(child: ChildChunk) -> str:
    """What a chunk's vector is made of: title and headings, then its text."""
    return f"{child.prefix}\n{child.text}" if child.prefix else child.text


def text_key(tenant: str, document: UUID, child: ChildChunk, engine: str) -> MemoKey:
    """What an embedder of this fingerprint is asked about one chunk."""
    return memo_key(tenant, document, engine, embedded_text(child).encode())


async def _answers(wanted: Sequence[tuple[DocumentChunked, ChildChunk]], ports: Ports) -> list[_Answer]:
    texts = [embedded_text(child) for _, child in wanted]

    async def ask(positions: list[int]) -> list[bytes]:
        return [_Answer.of(embedded).to_bytes() for embedded in await ports.embedder.embed([texts[position] for position in positions])]

    keys = [text_key(data.tenant, data.document_id, child, ports.embedder.fingerprint) for data, child in wanted]
    return [_Answer.from_bytes(answer) for answer in await remembered(ports.memo, keys, ask)]


async def _embedded(data: DocumentChunked, answers: dict[UUID, _Answer], ports: Ports) -> ChunksEmbedded:
    states = b"".join(answer.states for answer in answers.values())
    blob = await ports.blobs.put(blob_key(data.tenant, data.document_id, sha256_hex(states)), states) if states else None
    return ChunksEmbedded(
        tenant=data.tenant,
        document_id=data.document_id,
        order=data.order,
        origin=data.origin,
        part=data.part,
        parts=data.parts,
        model=ports.embedder.model,
        dimension=ports.embedder.dimension,
        vectors=list(_vectors(answers)),
        states=blob,
        state_dimension=ports.embedder.state_dimension,
    )


def _vectors(answers: dict[UUID, _Answer]) -> Iterable[ChunkVector]:
    offset = 0
    for chunk, answer in answers.items():
        yield ChunkVector(
            chunk_id=chunk,
            vector=base64.b64encode(answer.vector).decode(),
            state_offset=offset,
            state_length=len(answer.states),
            background_dense=answer.background_dense,
            background_maxsim=answer.background_maxsim,
        )
        offset += len(answer.states)


STAGE = Stage("embed", CHUNKED, VERSION, counts="visible", project=project, react=react, batch=16, output=EMBEDDED)
