"""Project questions and answers into the table of runs."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import Event, QueryAnswered, QueryReceived
from schemas.rows import Row, RunRow
from streams.stage import Stage
from streams.topics import QUERIES


def project(event: Event[QueryReceived | QueryAnswered]) -> Iterable[Row]:
    match event.data:
        case QueryReceived() as query:
            yield RunRow(query.run_id, query.tenant, query.kind, query.request, query.received_at, None, None, None, [], {}, None, query.asked_by)
        case QueryAnswered() as answer:
            yield RunRow(
                answer.run_id,
                answer.tenant,
                "",
                None,
                None,
                answer.generation,
                answer.response,
                answer.answered_at,
                answer.candidates,
                answer.numbers,
                answer.basis.model_dump(mode="json") if answer.basis else None,
            )


STAGE = Stage("runs", QUERIES, 1, ordering_policy="always", project=project, fails_document=False, serves_all_generations=True)
