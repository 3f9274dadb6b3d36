"""Carry out requests for erasure. Projects nothing: stage `control` projects the receipt."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import ErasureCompleted, ErasureRequested, KeysDestroyed
from schemas.ports.ledger import OrderingPolicy
from schemas.ports.stage_ports import StagePorts
from schemas.topics import CONTROL
from streams.stage import Emission, PendingEvent, Stage


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    """Erase the subject of each request. Other decisions are ignored."""
    emissions = []
    for event in (pending_event.event for pending_event in pending_events):
        if isinstance(event.data, ErasureRequested):
            assert ports.eraser is not None, "stage `erase` requires an eraser"
            receipt = await ports.eraser.erase(event.data)
            emissions.append(
                # One receipt per request, even if a redelivered request is carried out again.
                Emission(event, receipt, id_parts=("erasure", str(event.data.receipt_id)))
            )
    return emissions


STAGE = Stage(
    "erase",
    CONTROL,
    1,
    ordering_policy=OrderingPolicy.ALWAYS,
    react=react,
    emits=(KeysDestroyed, ErasureCompleted),
    # An erasure waits until everything in flight is processed, however slow the engines are.
    deadline_s=24 * 3600,
    fails_document=False,
    serves_all_generations=True,
)
