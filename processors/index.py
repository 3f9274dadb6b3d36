"""Project vectors into the index.

The transaction that completes a revision makes it visible; the reaction to that event publishes the
outcome.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

import numpy as np

from processors.outcomes import make_final_outcomes
from schemas.errors import MalformedEvent
from schemas.events import ChunksEmbedded, DocumentIndexed, DocumentSuperseded, Event
from schemas.ports.ledger import OrderingPolicy
from schemas.ports.stage_ports import StagePorts
from schemas.rows import PartCompletedRow, Row, TokenStateRow, VectorRow
from schemas.topics import EMBEDDED
from streams.stage import Emission, PendingEvent, Stage

VERSION = 1


def project(event: Event[ChunksEmbedded]) -> Iterable[Row]:
    data = event.data
    revision = data.document_id, tuple(data.order), data.tenant
    for chunk in data.vectors:
        vector = np.frombuffer(base64.b64decode(chunk.vector), dtype="<f2")
        if vector.shape != (data.dimension,):
            raise MalformedEvent(
                f"The vector of chunk {chunk.chunk_id} has {vector.shape[0]} dimensions instead "
                f"of {data.dimension}."
            )
        yield VectorRow(
            *revision, chunk.chunk_id, vector, chunk.background_dense, chunk.background_maxsim
        )
        # Embedders without token states leave the length at 0.
        if data.states is not None and chunk.state_length:
            yield TokenStateRow(
                *revision,
                chunk.chunk_id,
                data.states.key,
                chunk.state_offset,
                chunk.state_length,
            )
    # The transaction that stores the last missing part of a revision moves the visibility pointer.
    yield PartCompletedRow(*revision, "vectors", data.part, data.parts)


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    return [
        emission
        for pending_event in pending_events
        for emission in make_final_outcomes(pending_event)
    ]


STAGE = Stage(
    "index",
    EMBEDDED,
    VERSION,
    ordering_policy=OrderingPolicy.VISIBLE,
    project=project,
    react=react,
    emits=(DocumentIndexed, DocumentSuperseded),
    batch_size=32,
)
