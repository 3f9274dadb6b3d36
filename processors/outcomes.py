"""What a producer is told, said once: an outcome's id follows from the accepted event, whichever event completes the document."""

from __future__ import annotations

from schemas.events import Derived, DocumentIndexed, DocumentSuperseded, Event, RemovalCompleted
from schemas.events.outcomes import Outcome
from schemas.ports.ledger import Claim
from schemas.values import Origin
from streams.stage import Counted, Statement


def _said(cause: Counted, kind: type[Outcome], origin: Origin, **more: object) -> Statement:
    data: Derived = cause.fact.data
    outcome: Event = kind(
        external_id=origin.external_id, tenant=data.tenant, document_id=data.document_id, event_id=origin.event_id, source=origin.source, **more
    )
    return Statement(cause.fact, outcome, id_parts=("outcome", kind.name, str(origin.accepted_id)))


def indexed(cause: Counted, *, chunks: int, code: str | None = None) -> Statement:
    return _said(cause, DocumentIndexed, cause.fact.data.origin, chunks_count=chunks, code=code)


def amended(cause: Counted) -> Statement:
    """The chunks are those of the revision that answers; none where none does yet."""
    return indexed(cause, chunks=cause.flip.chunks if cause.flip else 0, code="AMENDED")


def superseded(cause: Counted) -> Statement:
    return _said(cause, DocumentSuperseded, cause.fact.data.origin, code="SUPERSEDED", detail="a later revision or a withdrawal of this document came first")


def removed(cause: Counted) -> Statement:
    return _said(cause, RemovalCompleted, cause.fact.data.origin)


def endings(cause: Counted) -> list[Statement]:
    """What an event behind `transcribe` ends with by itself: its revision became visible, or it came too late."""
    if cause.claim is Claim.SUPERSEDED:
        return [superseded(cause)]
    return [indexed(cause, chunks=cause.flip.chunks)] if cause.flip else []
