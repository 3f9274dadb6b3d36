"""What is generated from the code and committed."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from anabranch.contracts import REFERENCE, asyncapi_files, drift, openapi_files, schema_files
from api.app import VERSION
from schemas.events import declared
from schemas.records import Position, Record, StoredRecord
from streams.asyncapi import asyncapi_document, event_schema, schema_file
from streams.codec import Codec
from streams.examples import EXAMPLES
from streams.topics import RAW, partition_counts
from tests.golden.recording import everything

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("files", [openapi_files, asyncapi_files, schema_files])
def test_committed_contracts_are_what_the_code_says(files: Any) -> None:
    assert drift(files(), ROOT / REFERENCE) == [], "run `anabranch contract openapi`, `asyncapi`, `schemas`"


def test_no_schema_is_left_of_an_event_that_is_gone() -> None:
    committed = {path.name for path in (ROOT / REFERENCE / "events").glob("*.json")}
    assert committed == {schema_file(event) for event in declared()}


@pytest.mark.parametrize("event", declared(), ids=schema_file)
def test_every_event_has_a_valid_schema_of_its_own(event: Any) -> None:
    schema = event_schema(event)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == schema_file(event)


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document = asyncapi_document(VERSION)
    for reference in _references(document):
        if reference.startswith("#/"):
            place: Any = document
            for step in reference[2:].split("/"):
                place = place[step.replace("~1", "/")]
        else:
            assert (ROOT / REFERENCE / reference).is_file()


def test_every_topic_with_events_is_a_channel_with_all_of_them() -> None:
    channels = asyncapi_document(VERSION)["channels"]
    for topic in partition_counts(1):
        events = [event for event in declared() if event.topic == topic]
        assert len(channels.get(topic, {"messages": {}})["messages"]) == len(events)


@pytest.mark.parametrize("event", EXAMPLES, ids=schema_file)
def test_every_example_is_valid_by_the_schema_that_it_stands_in(event: Any) -> None:
    message = asyncapi_document(VERSION)["components"]["messages"][schema_file(event).removesuffix(".json")]
    committed = json.loads((ROOT / REFERENCE / "events" / schema_file(event)).read_text())
    assert message["examples"] and committed["examples"] == [example["payload"] for example in message["examples"]]
    for example in message["examples"]:
        Draft202012Validator(committed).validate(example["payload"])
        Draft202012Validator(message["headers"]).validate(example["headers"])


async def test_an_example_of_each_event_on_raw_is_read_by_the_codec() -> None:
    for event in [one for one in declared() if one.topic == RAW]:
        for example in EXAMPLES[event]:
            told = example.whole(event)
            record = Record(RAW, None, json.dumps(told["payload"]).encode(), {name: value.encode() for name, value in told["headers"].items()})
            fact = await Codec().decode(StoredRecord(record, Position(RAW, 0, 0), datetime(2026, 3, 1, tzinfo=UTC)))
            assert isinstance(fact.data, event) and fact.event_id == told["headers"]["ce_id"]


def test_what_was_written_is_valid_by_the_published_schemas() -> None:
    """Payloads as they were recorded, headers also where the payload is sealed."""
    kinds = {(event.topic, event.event_type()): event for event in declared()}
    messages, checked = asyncapi_document(VERSION)["components"]["messages"], set()
    for _, _, recorded in everything():
        event, record = kinds.get((recorded.topic, str(recorded.kind))), recorded.stored.record
        if event is None or record.headers["content-type"] == b"application/cloudevents+json":
            continue
        message = messages[schema_file(event).removesuffix(".json")]
        Draft202012Validator(message["headers"]).validate({name: value.decode() for name, value in record.headers.items()})
        if record.headers["content-type"] == b"application/json":
            Draft202012Validator(json.loads((ROOT / REFERENCE / "events" / schema_file(event)).read_text())).validate(json.loads(record.value or b""))
        checked.add((event, record.headers["content-type"]))
    assert {event for event, _ in checked} == set(declared()) and len(checked) > len(declared())


def test_the_example_of_a_foreign_producer_is_valid() -> None:
    payload = {
        "external_id": "contract-17",
        "tenant": "default",
        "filename": "contract-17.pdf",
        "media_type": "application/pdf",
        "content": {"base64": "aGk="},
        "title": None,
        "language": None,
        "collection": "contracts",
        "tags": [],
        "metadata": {},
    }
    schema = json.loads((ROOT / REFERENCE / "events" / "document.received.v1.json").read_text())
    Draft202012Validator(schema).validate(payload)
    assert not Draft202012Validator(schema).is_valid(payload | {"surprise": 1})


def test_the_version_is_the_same_everywhere() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in _references(item)]
    return [found for item in value for found in _references(item)] if isinstance(value, list) else []
