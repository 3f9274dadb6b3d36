"""Status of stages whose state does not follow from the tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sql.catalog.document_status import build_stage_lines

POSITION_FIELDS = ("topic", "partition", "offset")
REVISION: dict[str, Any] = {
    "unchanged": False,
    "state": "searchable",
    "text_topic": None,
    "parts": [],
    "dead_letters": [],
    "received_at": datetime(2026, 3, 1, 12, tzinfo=UTC),
    **{f"{prefix}_{name}": None for prefix in ("door", "log") for name in POSITION_FIELDS},
}


@pytest.mark.parametrize(
    ("has_reaction", "recorded", "state"),
    [(False, "running", "done"), (True, "running", "running"), (False, "failed", "failed")],
)
def test_claimed_stage_without_reaction_is_done(
    has_reaction: bool, recorded: str, state: str
) -> None:
    job_row = {
        "stage": "summaries",
        "state": recorded,
        "started_at": "2026-03-01T12:00:00+00:00",
        "duration_ms": None,
        "attempts": 1,
        "topic": "summarized",
        "partition": 0,
        "offset": 7,
        "error": None,
    }
    lines = build_stage_lines(REVISION | {"jobs": [job_row]}, {"summaries": has_reaction})
    assert [line["state"] for line in lines if line["stage"] == "summaries"] == [state]
