"""What a switch made searchable. A generation that is being built says nothing of documents; those that only the new one shows are told once it answers.

It projects nothing: stage control does."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import DocumentIndexed, Fact, GenerationPromoted
from schemas.ports.bundle import Ports
from streams.stage import Counted, Stage, Statement
from streams.topics import CONTROL


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    """Other decisions pass."""
    return [statement for item in counted if isinstance(item.fact.data, GenerationPromoted) for statement in await _announced(item.fact, ports)]


async def _announced(fact: Fact[GenerationPromoted], ports: Ports) -> list[Statement]:
    assert ports.switches is not None, "a worker that hosts this stage knows what is visible"
    if fact.data.previous is None:
        return []
    return [
        Statement(
            fact,
            DocumentIndexed(
                external_id=one.external_id,
                tenant=one.tenant,
                document_id=one.document_id,
                event_id=one.event_id,
                source=one.source,
                chunks_count=one.chunks,
            ),
            # As whoever had completed it would have said it.
            id_parts=("outcome", DocumentIndexed.name, str(one.accepted_id)),
        )
        for one in await ports.switches.shown(fact.data.generation, fact.data.previous)
    ]


STAGE = Stage("announce", CONTROL, 1, counts="always", react=react, essential=False, shared=True)
