"""What a switch made searchable. A generation that is being built says nothing of documents; those that only the new one shows are told once it answers.

It projects nothing: stage control does."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import DocumentIndexed, Event, GenerationPromoted
from schemas.ports.stage_ports import StagePorts
from streams.stage import Emission, PendingEvent, Stage
from streams.topics import CONTROL


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    """Other decisions pass."""
    return [
        emission
        for pending_event in pending_events
        if isinstance(pending_event.event.data, GenerationPromoted)
        for emission in await _announce_newly_visible(pending_event.event, ports)
    ]


async def _announce_newly_visible(event: Event[GenerationPromoted], ports: StagePorts) -> list[Emission]:
    assert ports.generation_switches is not None, "a worker that hosts this stage knows what is visible"
    if event.data.previous is None:
        return []
    return [
        Emission(
            event,
            DocumentIndexed(
                external_id=revision.external_id,
                tenant=revision.tenant,
                document_id=revision.document_id,
                event_id=revision.event_id,
                source=revision.source,
                chunks_count=revision.n_chunks,
            ),
            # As whoever had completed it would have said it.
            id_parts=("outcome", DocumentIndexed.name, str(revision.accepted_id)),
        )
        for revision in await ports.generation_switches.fetch_newly_visible(event.data.generation, event.data.previous)
    ]


STAGE = Stage("announce", CONTROL, 1, ordering_policy="always", react=react, fails_document=False, serves_all_generations=True)
