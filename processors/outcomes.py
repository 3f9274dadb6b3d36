"""Outcomes for producers.

An outcome's id derives from the accepted event, so that it is published once, whichever event
completes the document.
"""

from __future__ import annotations

from schemas.events import (
    DocumentIndexed,
    DocumentSuperseded,
    EventData,
    PipelineEventData,
    RemovalCompleted,
)
from schemas.events.outcomes import DocumentOutcome
from schemas.ports.ledger import ClaimStatus
from schemas.values import Origin
from streams.stage import Emission, PendingEvent


def _make_outcome(
    cause: PendingEvent, outcome_class: type[DocumentOutcome], **fields: object
) -> Emission:
    data: PipelineEventData = cause.event.data
    origin: Origin = cause.event.data.origin
    outcome: EventData = outcome_class(
        external_id=origin.external_id,
        tenant=data.tenant,
        document_id=data.document_id,
        event_id=origin.event_id,
        source=origin.source,
        **fields,
    )
    return Emission(
        cause.event, outcome, id_parts=("outcome", outcome_class.name, str(origin.accepted_id))
    )


def make_indexed_outcome(cause: PendingEvent, code: str | None = None) -> Emission:
    """Make an outcome with the visible revision's chunk count (0 if none)."""
    n_chunks = cause.visibility_change.n_chunks if cause.visibility_change else 0
    return _make_outcome(cause, DocumentIndexed, chunks_count=n_chunks, code=code)


def make_superseded_outcome(cause: PendingEvent) -> Emission:
    return _make_outcome(
        cause,
        DocumentSuperseded,
        code="SUPERSEDED",
        detail="A later revision, a withdrawal or other readers of this document came first.",
    )


def make_removed_outcome(cause: PendingEvent) -> Emission:
    return _make_outcome(cause, RemovalCompleted)


def make_final_outcomes(cause: PendingEvent) -> list[Emission]:
    """Make the outcome of an event after `transcribe` if it made its revision visible or was
    superseded.
    """
    if cause.status is ClaimStatus.SUPERSEDED:
        return [make_superseded_outcome(cause)]
    return [make_indexed_outcome(cause)] if cause.visibility_change else []
