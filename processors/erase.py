"""Carry out requests for erasure. Projects nothing: stage `control` projects the receipt."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import ErasureRequested, Event
from schemas.ports.stage_ports import StagePorts
from streams.stage import Emission, PendingEvent, Stage
from streams.topics import CONTROL


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    """Erase the subject of each request. Other decisions are ignored."""
    return [await _erase_subject(pending_event.event, ports) for pending_event in pending_events if isinstance(pending_event.event.data, ErasureRequested)]


async def _erase_subject(event: Event[ErasureRequested], ports: StagePorts) -> Emission:
    assert ports.eraser is not None, "stage `erase` requires an eraser"
    return Emission(event, await ports.eraser.erase(event.data), id_parts=("erasure", str(event.data.receipt_id)))


STAGE = Stage("erase", CONTROL, 1, ordering_policy="always", react=react, deadline_s=24 * 3600, fails_document=False, serves_all_generations=True)
