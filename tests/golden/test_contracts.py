"""Generated files that are committed."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from anabranch.cli.config import (
    REFERENCE_DIR,
    build_asyncapi_files,
    build_openapi_files,
    build_schema_files,
    find_drift,
)
from api.app import VERSION
from processors import EVENT_CLASSES, TOPICS
from schemas.topics import RAW, Position, Record, StoredRecord
from streams.asyncapi import (
    EXAMPLES,
    build_asyncapi_document,
    build_event_schema,
    get_schema_file_name,
)
from streams.codec import Codec
from tests.golden.recording import RECORD_COMMAND, iter_recorded_events

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("files", [build_openapi_files, build_asyncapi_files, build_schema_files])
def test_committed_contracts_match_code(files: Any) -> None:
    assert find_drift(files(), ROOT / REFERENCE_DIR) == [], (
        "run `anabranch contract openapi`, `asyncapi`, `schemas`"
    )


def test_committed_schemas_are_exactly_the_declared_events() -> None:
    committed = {path.name for path in (ROOT / REFERENCE_DIR / "events").glob("*.json")}
    # Older versions stay published: logs hold their events.
    assert committed == {
        get_schema_file_name(event).replace(event.event_type(), f"{event.name}.v{version}")
        for event in EVENT_CLASSES
        for version in range(1, event.version + 1)
    }


@pytest.mark.parametrize("event", EVENT_CLASSES, ids=get_schema_file_name)
def test_every_event_has_a_valid_schema(event: Any) -> None:
    schema = build_event_schema(event)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == get_schema_file_name(event)


def test_asyncapi_references_resolve() -> None:
    document = build_asyncapi_document(VERSION, EVENT_CLASSES, TOPICS)
    for reference in _list_references(document):
        if reference.startswith("#/"):
            place: Any = document
            for step in reference[2:].split("/"):
                place = place[step.replace("~1", "/")]
        else:
            assert (ROOT / REFERENCE_DIR / reference).is_file()


def test_asyncapi_channels_list_all_events_of_topic() -> None:
    channels = build_asyncapi_document(VERSION, EVENT_CLASSES, TOPICS)["channels"]
    for topic in TOPICS:
        events = [event for event in EVENT_CLASSES if event.topic == topic]
        assert len(channels.get(topic, {"messages": {}})["messages"]) == len(events)


@pytest.mark.parametrize("event", EXAMPLES, ids=get_schema_file_name)
def test_examples_validate_against_their_schema(event: Any) -> None:
    message = build_asyncapi_document(VERSION, EVENT_CLASSES, TOPICS)["components"]["messages"][
        get_schema_file_name(event).removesuffix(".json")
    ]
    committed = json.loads(
        (ROOT / REFERENCE_DIR / "events" / get_schema_file_name(event)).read_text()
    )
    assert message["examples"] and committed["examples"] == [
        example["payload"] for example in message["examples"]
    ]
    for example in message["examples"]:
        Draft202012Validator(committed).validate(example["payload"])
        Draft202012Validator(message["headers"]).validate(example["headers"])


async def test_raw_event_examples_are_decodable() -> None:
    for event in [one for one in EVENT_CLASSES if one.topic == RAW]:
        for example in EXAMPLES[event]:
            message = example.to_asyncapi(event)
            record = Record(
                RAW,
                None,
                json.dumps(message["payload"]).encode(),
                {name: value.encode() for name, value in message["headers"].items()},
            )
            recorded_event = await Codec().decode(
                StoredRecord(record, Position(RAW, 0, 0), datetime(2026, 3, 1, tzinfo=UTC))
            )
            assert (
                isinstance(recorded_event.data, event)
                and recorded_event.event_id == message["headers"]["ce_id"]
            )


def test_recorded_events_validate_against_published_schemas() -> None:
    """Return recorded payloads, with headers for sealed ones too."""
    kinds = {(event.topic, event.event_type()): event for event in EVENT_CLASSES}
    messages, checked = (
        build_asyncapi_document(VERSION, EVENT_CLASSES, TOPICS)["components"]["messages"],
        set(),
    )
    for _, _, recorded in iter_recorded_events():
        event, record = (
            kinds.get((recorded.topic, str(recorded.event_type))),
            recorded.stored.record,
        )
        if event is None or record.headers["content-type"] == b"application/cloudevents+json":
            continue
        message = messages[get_schema_file_name(event).removesuffix(".json")]
        Draft202012Validator(message["headers"]).validate(
            {name: value.decode() for name, value in record.headers.items()}
        )
        if record.headers["content-type"] == b"application/json":
            Draft202012Validator(
                json.loads(
                    (ROOT / REFERENCE_DIR / "events" / get_schema_file_name(event)).read_text()
                )
            ).validate(json.loads(record.value or b""))
        checked.add((event, record.headers["content-type"]))
    recorded_events = {event for event, _ in checked}
    missing = [event.event_type() for event in EVENT_CLASSES if event not in recorded_events]
    assert missing == [], f"No recorded event of these types. Run `{RECORD_COMMAND}`."
    assert len(checked) > len(EVENT_CLASSES), "No sealed payloads are recorded."


def test_external_producer_example_is_valid() -> None:
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
    schema = json.loads((ROOT / REFERENCE_DIR / "events" / "document.received.v1.json").read_text())
    Draft202012Validator(schema).validate(payload)
    assert not Draft202012Validator(schema).is_valid(payload | {"surprise": 1})


def test_version_matches_pyproject() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def _list_references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in _list_references(item)]
    return (
        [found for item in value for found in _list_references(item)]
        if isinstance(value, list)
        else []
    )
