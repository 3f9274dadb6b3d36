"""Change events that somebody recorded, where DEBEZIUM_EVENTS names a folder with them: one JSON
line an event, under `event`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from schemas.errors import MalformedEvent
from schemas.sources import DebeziumSource, RowMapping, SourceSpec
from schemas.topics import Record
from streams.sources.change_applier import ChangeApplier
from streams.sources.debezium import parse_change_events
from streams.sources.raw_producer import RawProducer
from tests.support.source_harness import FIXED_TIME, SourceHarness

FOLDER = Path(os.environ.get("DEBEZIUM_EVENTS", ""))
pytestmark = pytest.mark.skipif(
    not (FOLDER / "documentation.jsonl").exists(),
    reason="DEBEZIUM_EVENTS names no folder with recorded events",
)


def read_recorded_events(name: str) -> Iterator[dict[str, Any]]:
    for line in (FOLDER / name).read_text().splitlines():
        yield json.loads(line)


def _extract_row(event: dict[str, Any]) -> dict[str, Any]:
    payload = event.get("payload") or event
    return payload.get("after") or payload.get("before") or {}


def test_recorded_event_is_decoded_or_rejected_with_code() -> None:
    read: set[str] = set()
    for line in read_recorded_events("documentation.jsonl"):
        row = _extract_row(line["event"])
        if not isinstance(row, dict) or not row:
            continue
        mapping = RowMapping(body=[list(row)[-1]])
        key = {name: row[name] for name in list(row)[:1]}
        try:
            changes = parse_change_events(
                Record("t", json.dumps(key).encode(), json.dumps(line["event"]).encode()),
                1,
                mapping,
            )
        except MalformedEvent as refusal:
            assert refusal.code in {"MALFORMED_CHANGE", "NO_POSITION", "NO_SUCH_COLUMN"}, (
                refusal.detail
            )
        else:
            read |= {line["connector"]} if changes else set()
    assert read >= {"postgresql", "oracle", "sqlserver"}


@pytest.mark.parametrize("seed", range(30))
async def test_recorded_stream_yields_same_documents_in_any_order(seed: int) -> None:
    """The recording has no positions; the order of its lines replaces them."""
    for table, body in (("products", "description"), ("customers", "address")):
        mapping = RowMapping(body=[body], title="name")
        records, rows = [], {}
        for number, line in enumerate(read_recorded_events("mysql-stream.jsonl")):
            event, row = line["event"], _extract_row(line["event"])
            if event["source"]["table"] != table:
                continue
            event["source"] |= {
                "connector": "mysql",
                "file": "mysql-bin.000003",
                "pos": 100 + number,
                "row": 0,
            }
            records.append(
                Record("t", json.dumps({"id": row["id"]}).encode(), json.dumps(event).encode())
            )
            rows |= {str(row["id"]): event["after"] and (row["name"], row[body])}
        Random(seed).shuffle(records)
        reading = SourceHarness()
        await reading.create_topics()
        spec = SourceSpec(name=table, connector=DebeziumSource(topic="t", mapping=mapping))
        applier = ChangeApplier(
            reading.store,
            RawProducer(
                spec, reading.codec, reading.applier._raw_producer.blobs, lambda: FIXED_TIME
            ),
            mapping,
            reading.log,
        )
        for record in records:
            await applier.apply(parse_change_events(record, 1, mapping))
        assert await reading.read_documents() == {key: row for key, row in rows.items() if row}
