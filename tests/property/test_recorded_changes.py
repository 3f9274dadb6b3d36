"""Change events that somebody recorded, where DEBEZIUM_EVENTS names a folder with them: one JSON line an event, under `event`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from schemas.errors import MalformedEvent
from schemas.records import Record
from schemas.sources import DebeziumSource, RowMapping, SourceSpec
from streams.sources.applying import Applier
from streams.sources.delivery import Delivery
from streams.sources.envelope import sayings
from tests.property.test_sources import MOMENT, Reading

FOLDER = Path(os.environ.get("DEBEZIUM_EVENTS", ""))
pytestmark = pytest.mark.skipif(not (FOLDER / "documentation.jsonl").exists(), reason="DEBEZIUM_EVENTS names no folder with recorded events")


def recorded(name: str) -> Iterator[dict[str, Any]]:
    for line in (FOLDER / name).read_text().splitlines():
        yield json.loads(line)


def _row(event: dict[str, Any]) -> dict[str, Any]:
    payload = event.get("payload") or event
    return payload.get("after") or payload.get("before") or {}


def test_every_recorded_event_is_read_or_refused_with_a_reason() -> None:
    read: set[str] = set()
    for line in recorded("documentation.jsonl"):
        row = _row(line["event"])
        if not isinstance(row, dict) or not row:
            continue
        mapping = RowMapping(body=[list(row)[-1]])
        key = {name: row[name] for name in list(row)[:1]}
        try:
            said = sayings(Record("t", json.dumps(key).encode(), json.dumps(line["event"]).encode()), 1, mapping)
        except MalformedEvent as refusal:
            assert refusal.code in {"MALFORMED_CHANGE", "NO_POSITION", "NO_SUCH_COLUMN"}, refusal.detail
        else:
            read |= {line["connector"]} if said else set()
    assert read >= {"postgresql", "oracle", "sqlserver"}


@pytest.mark.parametrize("seed", range(30))
async def test_a_recorded_stream_ends_in_the_same_documents_in_any_order(seed: int) -> None:
    """Its positions were taken out of the recording: they are given back by the order of its lines."""
    for table, body in (("products", "description"), ("customers", "address")):
        mapping = RowMapping(body=[body], title="name")
        records, rows = [], {}
        for number, line in enumerate(recorded("mysql-stream.jsonl")):
            event, row = line["event"], _row(line["event"])
            if event["source"]["table"] != table:
                continue
            event["source"] |= {"connector": "mysql", "file": "mysql-bin.000003", "pos": 100 + number, "row": 0}
            records.append(Record("t", json.dumps({"id": row["id"]}).encode(), json.dumps(event).encode()))
            rows |= {str(row["id"]): event["after"] and (row["name"], row[body])}
        Random(seed).shuffle(records)
        reading = Reading()
        await reading.begin()
        spec = SourceSpec(name=table, takes=DebeziumSource(topic="t", mapping=mapping))
        applier = Applier(reading.store, Delivery(spec, reading.codec, reading.applier._delivery.blobs, lambda: MOMENT), mapping, reading.log)
        for record in records:
            await applier.apply(sayings(record, 1, mapping))
        assert await reading.documents() == {key: row for key, row in rows.items() if row}
