"""Replay what a real Debezium sent about a small table, without Java.

`python -m tests.debezium.record` records it again.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from schemas.sources import RowMapping
from schemas.topics import Record
from tests.debezium.notes_table import (
    COLUMN_ENCODINGS,
    DOCUMENTS_AFTER_TRUNCATE,
    DOCUMENTS_BEFORE_TRUNCATE,
    METADATA_OF_1,
)
from tests.support.source_harness import SPEC, SourceHarness

RECORDED = Path(__file__).parents[1] / "debezium" / "recorded"
both_recordings = pytest.mark.parametrize("recording", ["with_schema", "without_schema"])


def make_mapping(recording: str) -> RowMapping:
    encodings = {} if recording == "with_schema" else COLUMN_ENCODINGS
    return RowMapping.model_validate(
        {"body": ["body"], "title": "title", "metadata": [*METADATA_OF_1], "encodings": encodings}
    )


def read_recording(recording: str) -> list[dict[str, Any]]:
    lines = (RECORDED / f"{recording}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def get_operation(line: dict[str, Any]) -> str | None:
    """Return the letter of the operation, None for a tombstone."""
    value = line["value"]
    return None if value is None else value.get("payload", value)["op"]


def to_records(lines: list[dict[str, Any]]) -> list[Record]:
    def encode(value: Any) -> bytes | None:
        return None if value is None else json.dumps(value).encode()

    return [Record("t", encode(line["key"]), encode(line["value"])) for line in lines]


async def replay(recording: str, records: list[Record], *, batch: int = 3) -> SourceHarness:
    harness = SourceHarness(mapping=make_mapping(recording))
    await harness.create_topics()
    await harness.apply_records(records, batch=batch)
    return harness


@both_recordings
def test_recording_has_every_kind_of_change(recording: str) -> None:
    lines = read_recording(recording)
    operations = [get_operation(line) for line in lines]
    assert set(operations) == {"r", "c", "u", "d", "t", None}
    assert "__debezium_unavailable_value" in json.dumps(lines), (
        "an update without its toasted value"
    )
    assert all(
        (set(line["value"]) == {"schema", "payload"}) == (recording == "with_schema")
        for line in lines
        if line["value"] is not None
    )


@both_recordings
async def test_recorded_changes_make_the_documents_of_the_table(recording: str) -> None:
    lines = read_recording(recording)
    truncation = [get_operation(line) for line in lines].index("t")
    harness = await replay(recording, to_records(lines[:truncation]))
    assert await harness.read_documents() == DOCUMENTS_BEFORE_TRUNCATE
    assert (await harness.read_received())["1"].metadata == METADATA_OF_1
    harness = await replay(recording, to_records(lines))
    assert await harness.read_documents() == DOCUMENTS_AFTER_TRUNCATE


@both_recordings
@pytest.mark.parametrize("seed", range(20))
async def test_recorded_changes_in_any_order_make_the_same_documents(
    recording: str, seed: int
) -> None:
    lines, rng = read_recording(recording), Random(seed)
    truncation = [get_operation(line) for line in lines].index("t")
    for replayed_lines, expected in (
        (lines[:truncation], DOCUMENTS_BEFORE_TRUNCATE),
        (lines, DOCUMENTS_AFTER_TRUNCATE),
    ):
        records = to_records(replayed_lines) * 2
        rng.shuffle(records)
        harness = await replay(recording, records, batch=rng.randint(1, 5))
        assert await harness.read_documents() == expected
        assert await harness.store.fetch_pending(SPEC.name, "", 10) == []
