"""Project dead letters and their resolutions into their table."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.errors import MalformedEvent
from schemas.events import DeadLetterClosed, Event, EventDeadLettered
from schemas.ports.ledger import OrderingPolicy
from schemas.rows import DeadLetterClosedRow, DeadLetterRow, Row
from schemas.topics import DEAD_LETTERS
from streams.stage import Stage


def project(event: Event[EventDeadLettered | DeadLetterClosed]) -> Iterable[Row]:
    data = event.data
    if isinstance(data, DeadLetterClosed):
        yield DeadLetterClosedRow(
            data.event_id, data.stage, data.generation, data.resolution, data.reason, data.closed_at
        )
        return
    # CloudEvents makes `ce_time` optional; the row needs it.
    if event.time is None:
        raise MalformedEvent("The dead letter has no ce_time.")
    yield DeadLetterRow(
        event_id=data.event_id,
        stage=data.stage,
        generation=data.generation,
        original_type=data.original_type,
        tenant=data.tenant,
        document_id=data.document_id,
        topic=data.position.topic,
        partition=data.position.partition,
        offset=data.position.offset,
        code=data.code,
        detail=data.detail,
        remedy=data.remedy,
        traceback=data.traceback,
        attempts=data.attempts,
        record=data.record,
        producer_event_id=data.producer_event_id,
        producer_source=data.producer_source,
        dead_lettered_at=event.time,
        headers=data.headers,
        appended_at=data.appended_at,
        document_summary=data.document_summary,
    )


STAGE = Stage(
    "dead_letters",
    DEAD_LETTERS,
    1,
    ordering_policy=OrderingPolicy.ALWAYS,
    project=project,
    fails_document=False,
    serves_all_generations=True,
)
