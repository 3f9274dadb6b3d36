"""Rows of recorded runs."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from processors import runs
from schemas.events import Event, QueryAnswered, QueryReceived
from tests.unit.retrieval_harness import RetrievalHarness

COST_QUESTION = "How much does the replacement of the bearing cost?"


def make_run_row(built: RetrievalHarness) -> dict[str, Any]:
    """Build the row of a run whose events were encoded to JSON and decoded."""
    row: dict[str, Any] = {}
    for event in built.published_events:
        assert isinstance(event, QueryReceived | QueryAnswered)
        [found] = runs.project(
            Event(
                RUN_ID,
                type(event).model_validate_json(event.model_dump_json(exclude_none=True)),
                "",
                "",
                None,
            )
        )
        row |= {
            name: value
            for name in found.__slots__
            if (value := getattr(found, name)) not in (None, "", [], {})
        }
    return dict(json.loads(json.dumps(row, default=str)))


RUN_ID = UUID(int=7)
