"""Vectors into the index. The transaction that completes a revision makes it visible; whoever completes it says so."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

import numpy as np

from processors.outcomes import endings
from schemas.errors import MalformedEvent
from schemas.events import ChunksEmbedded, Fact
from schemas.ports.bundle import Ports
from schemas.rows import Row, SettledRow, StateRow, VectorRow
from streams.stage import Counted, Stage, Statement
from streams.topics import EMBEDDED

VERSION = 1


def project(fact: Fact[ChunksEmbedded]) -> Iterable[Row]:
    data, order = fact.data, tuple(fact.data.order)
    for chunk in data.vectors:
        vector = np.frombuffer(base64.b64decode(chunk.vector), dtype="<f2")
        if vector.shape != (data.dimension,):
            raise MalformedEvent(f"chunk {chunk.chunk_id} has {vector.shape[0]} numbers, the event says {data.dimension}")
        yield VectorRow(chunk.chunk_id, data.document_id, order, data.tenant, vector, chunk.background_dense, chunk.background_maxsim)
        if data.states is not None and chunk.state_length:
            yield StateRow(chunk.chunk_id, data.document_id, order, data.tenant, data.states.key, chunk.state_offset, chunk.state_length)
    yield SettledRow(data.document_id, order, data.tenant, "vectors", data.part, data.parts)


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    return [statement for item in counted for statement in endings(item)]


STAGE = Stage("index", EMBEDDED, VERSION, counts="visible", project=project, react=react, batch=32)
