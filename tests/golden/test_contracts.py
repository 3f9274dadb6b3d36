"""What is generated from the code and committed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from anabranch.contracts import REFERENCE, asyncapi_files, drift, openapi_files, schema_files
from api.app import VERSION
from schemas.events import declared
from streams.asyncapi import asyncapi_document, event_schema, schema_file
from streams.topics import partition_counts

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
