"""Rows of recorded runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from processors import runs
from retrieval.runs.rerun import Rerun, rerun_run
from retrieval.runs.run_record import hash_text
from schemas.events import Event, QueryAnswered, QueryReceived
from schemas.ports.lineage import RecordedText
from schemas.principals import Principal
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_harness import RUN_ID, RetrievalHarness


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


class FakeRecordedTexts:
    """Recorded texts of an index that may have lost some."""

    def __init__(self, built: RetrievalHarness, *, without: Sequence[str] = ()) -> None:
        self._texts = {
            view.chunk_id: view.text
            for view in built.index.views.values()
            if view.external_id not in without
        }
        self._texts |= {
            view.parent_id: view.text
            for view in built.index.parent_views.values()
            if not any(word in view.text for word in without)
        }

    async def fetch_texts(
        self, caller: Principal, texts: Sequence[RecordedText]
    ) -> dict[UUID, str]:
        return {
            one.id: text
            for one in texts
            if (text := self._texts.get(one.id)) is not None and hash_text(text) == one.text_sha256
        }


async def rerun_query(built: RetrievalHarness, **options: Any) -> Rerun:
    """Rerun what a harness has published."""
    row = {"run_record": None, "response": None, **make_run_row(built)}
    return await rerun_run(row, LOCAL_CALLER, FakeRecordedTexts(built, **options))
