"""Carry out erasures and deletions of collections, one after the other.

Projects nothing: stage `control` projects requests and results.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import (
    CollectionDeleted,
    CollectionDeletionRequested,
    ErasureCompleted,
    ErasureRequested,
    KeysDestroyed,
)
from schemas.ports.stage_ports import StagePorts
from schemas.topics import CONTROL
from streams.stage import Emission, PendingEvent, shared_stage


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    """Carry out each request. Other decisions are ignored."""
    emissions: list[Emission] = []
    for event in (pending_event.event for pending_event in pending_events):
        if isinstance(event.data, ErasureRequested):
            assert ports.eraser is not None, "stage `erase` requires an eraser"
            receipt = await ports.eraser.erase(event.data)
            emissions.append(
                # One receipt per request, even if a redelivered request is carried out again.
                Emission(event, receipt, id_parts=("erasure", str(event.data.receipt_id)))
            )
        elif isinstance(event.data, CollectionDeletionRequested):
            assert ports.collection_deleter is not None, "stage `erase` requires a deleter"
            assert event.appended_at is not None, "the log stamps every record"
            if deleted := await ports.collection_deleter.delete(event.data, event.appended_at):
                id_parts = ("collection.deleted", str(event.data.deletion_id))
                emissions.append(Emission(event, deleted, id_parts=id_parts))
    return emissions


STAGE = shared_stage(
    "erase",
    CONTROL,
    1,
    react=react,
    emits=(KeysDestroyed, ErasureCompleted, CollectionDeleted),
    # An erasure waits until everything in flight is processed, however slow the engines are.
    deadline_s=24 * 3600,
)
