"""Publish the outcomes of documents that a promotion made searchable.

A generation that is being built publishes no outcomes. Revisions that only the new generation shows
are announced when it becomes live. This stage projects nothing, since stage `control` projects the
same topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import DocumentIndexed, GenerationPromoted
from schemas.ports.stage_ports import StagePorts
from schemas.topics import CONTROL
from streams.stage import Emission, PendingEvent, shared_stage


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    """Announce the newly visible revisions of promotions. Other decisions are ignored."""
    emissions: list[Emission] = []
    for event in (pending_event.event for pending_event in pending_events):
        if not isinstance(event.data, GenerationPromoted) or event.data.previous is None:
            continue
        assert ports.generation_switches is not None, "stage `announce` requires them"
        for revision in await ports.generation_switches.fetch_newly_visible(
            event.data.generation, event.data.previous
        ):
            outcome = DocumentIndexed(
                external_id=revision.external_id,
                tenant=revision.tenant,
                document_id=revision.document_id,
                event_id=revision.event_id,
                source=revision.source,
                chunks_count=revision.n_chunks,
            )
            # The id that the completing stage would have used: the outcome is published once.
            id_parts = ("outcome", DocumentIndexed.name, str(revision.accepted_id))
            emissions.append(Emission(event, outcome, id_parts=id_parts))
    return emissions


STAGE = shared_stage("announce", CONTROL, 1, react=react, emits=(DocumentIndexed,))
