"""Project questions and answers into the table of runs."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import Event, QueryAnswered, QueryReceived
from schemas.ports.ledger import OrderingPolicy
from schemas.rows import Row, RunRow
from schemas.topics import QUERIES
from streams.stage import Stage


def project(event: Event[QueryReceived | QueryAnswered]) -> Iterable[Row]:
    match event.data:
        case QueryReceived() as query:
            yield RunRow(
                run_id=query.run_id,
                tenant=query.tenant,
                kind=query.kind,
                request=query.request,
                received_at=query.received_at,
                generation=None,
                response=None,
                answered_at=None,
                candidates=[],
                numbers={},
                requested_by=query.requested_by,
            )
        case QueryAnswered() as answer:
            # Each event fills only its own half of the row.
            yield RunRow(
                run_id=answer.run_id,
                tenant=answer.tenant,
                kind="",
                request=None,
                received_at=None,
                generation=answer.generation,
                response=answer.response,
                answered_at=answer.answered_at,
                candidates=answer.candidates,
                numbers=answer.numbers,
                run_record=answer.run_record.model_dump(mode="json") if answer.run_record else None,
            )


STAGE = Stage(
    "runs",
    QUERIES,
    1,
    ordering_policy=OrderingPolicy.ALWAYS,
    project=project,
    fails_document=False,
    serves_all_generations=True,
)
