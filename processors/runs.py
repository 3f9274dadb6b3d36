"""Questions and their answers into the table of runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas.events import Fact, QueryAnswered, QueryReceived
from schemas.rows import Row, RunRow
from streams.stage import Stage
from streams.topics import QUERIES


def project(fact: Fact[QueryReceived | QueryAnswered]) -> Iterable[Row]:
    match fact.data:
        case QueryReceived() as asked:
            yield RunRow(asked.run_id, asked.tenant, asked.kind, asked.request, asked.received_at, None, None, None, [], {}, None, asked.asked_by)
        case QueryAnswered() as said:
            yield RunRow(
                said.run_id, said.tenant, "", None, None, said.generation, said.response, said.answered_at, said.candidates, said.numbers, _basis(said)
            )


def _basis(said: QueryAnswered) -> dict[str, Any] | None:
    return said.basis.model_dump(mode="json") if said.basis else None


STAGE = Stage("runs", QUERIES, 1, counts="always", project=project, essential=False, shared=True)
