"""Project questions and answers into the table of runs."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import (
    Event,
    QueryAnswered,
    QueryReceived,
    RunProgressed,
    RunStarted,
    RunStopped,
)
from schemas.rows import Row, RunRow
from schemas.topics import QUERIES
from streams.stage import shared_stage

QueryEvent = QueryReceived | QueryAnswered | RunStarted | RunProgressed | RunStopped


def project(event: Event[QueryEvent]) -> Iterable[Row]:
    # Each event fills only its own part of the row.
    run_id, tenant = event.data.run_id, event.data.tenant
    match event.data:
        case QueryReceived() as query:
            yield RunRow(
                run_id,
                tenant,
                kind=query.kind,
                request=query.request,
                received_at=query.received_at,
                requested_by=query.requested_by,
            )
        case QueryAnswered() as answer:
            yield RunRow(
                run_id,
                tenant,
                generation=answer.generation,
                response=answer.response,
                answered_at=answer.answered_at,
                candidates=answer.candidates,
                numbers=answer.numbers,
                run_record=answer.run_record.model_dump(mode="json") if answer.run_record else None,
                experiment=answer.experiment.model_dump(mode="json") if answer.experiment else None,
            )
        case RunStarted() as run:
            yield RunRow(
                run_id,
                tenant,
                kind="query",
                received_at=run.started_at,
                requested_by=run.requested_by,
                deadline=run.deadline,
                process_id=run.process_id,
            )
        case RunProgressed(number=number) as progress:
            step = progress.model_dump(mode="json", exclude={"run_id", "tenant", "number"})
            yield RunRow(run_id, tenant, steps={str(number): step})
        case RunStopped() as stop:
            stopped = stop.model_dump(mode="json", exclude={"run_id", "tenant"})
            yield RunRow(run_id, tenant, stopped=stopped)


STAGE = shared_stage("runs", QUERIES, 1, project=project)
