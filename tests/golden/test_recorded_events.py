"""Events of earlier versions of the program: each decodes to the fields it was recorded with.

New fields may be added.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from processors import EVENT_CLASSES, STAGES
from schemas.events import DocumentFailed, EventData, EventDeadLettered
from schemas.topics import RAW
from streams.asyncapi import JSON_SCHEMA, get_schema_file_name
from streams.stage import Stage
from tests.golden.recording import (
    RECORD_COMMAND,
    RecordedEvent,
    decode_or_error,
    iter_recorded_events,
    list_recordings,
    make_codec,
)
from tests.golden.schema_compatibility import find_incompatibilities, find_removed_fields

SEALED = b"application/octet-stream"
STRUCTURED = b"application/cloudevents+json"
RECORDED_EVENTS = list(iter_recorded_events())
DECODED_KINDS = {
    (recorded.topic, recorded.event_type, recorded.stored.record.headers.get("content-type"))
    for _, _, recorded in RECORDED_EVENTS
    if recorded.event_type
}
PER_EVENT = pytest.mark.parametrize("event", EVENT_CLASSES, ids=get_schema_file_name)


def list_versions(event: type[EventData]) -> list[str]:
    return [f"{event.name}.v{version}" for version in range(1, event.version + 1)]


@PER_EVENT
def test_every_event_version_is_recorded(event: type[EventData]) -> None:
    wanted = {(event.topic, kind, b"application/json") for kind in list_versions(event)}
    if event.topic == RAW:
        wanted |= {(event.topic, kind, STRUCTURED) for kind in list_versions(event)}
    if event.is_sealed:
        wanted |= {(event.topic, kind, SEALED) for kind in list_versions(event)}
    missing = sorted(wanted - DECODED_KINDS)
    assert missing == [], f"Not recorded. Run `{RECORD_COMMAND}`."


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_recorded_events_of_stage_are_declared(stage: Stage) -> None:
    recorded_events = {
        (recorded.topic, recorded.event_type)
        for _, _, recorded in RECORDED_EVENTS
        if recorded.event_type
        and recorded.stored.record.headers.get("ce_source") == f"anabranch/{stage.name}".encode()
    }
    of_failures = {
        (event.topic, event.event_type()) for event in (EventDeadLettered, DocumentFailed)
    }
    declared = {(event.topic, event.event_type()) for event in stage.emits}
    assert recorded_events - of_failures <= declared
    if stage.output_topic:
        assert stage.output_topic in {topic for topic, _ in recorded_events}, (
            f"No event of stage {stage.name} is recorded. Run `{RECORD_COMMAND}`."
        )


@pytest.mark.parametrize("recording", list_recordings(), ids=lambda path: path.name)
async def test_recorded_events_decode_unchanged(recording: Path) -> None:
    codec = make_codec(recording)
    changed = [
        (name, one.stored.position, difference)
        for folder, name, one in RECORDED_EVENTS
        if folder == recording
        and (difference := find_difference(one, await decode_or_error(codec, one.stored)))
    ]
    assert changed == []


def find_difference(recorded: RecordedEvent, decoded: dict[str, Any]) -> str | None:
    """Return None if the event has its recorded fields, else a description of the difference.

    For an older event version, the upcast payload is compared. New fields may have their defaults.
    """
    expected, actual = dict(recorded.decoded), dict(decoded)
    if "error" in expected:
        return None if expected == actual else f"{expected} became {actual}"
    before, after = expected.pop("data"), actual.pop("data", None)
    name = str(recorded.event_type).rpartition(".v")[0]
    event = next(
        (one for one in EVENT_CLASSES if (one.topic, one.name) == (recorded.topic, name)), None
    )
    if event is None:
        return f"no event class {name} of topic {recorded.topic}"
    if event.event_type() != recorded.event_type:
        expected["type"] = event.event_type()
        before = event.upcast_payload(before, int(str(recorded.event_type).rpartition(".v")[2]))
    changed = [
        name for name, value in expected.items() if name not in actual or actual[name] != value
    ]
    return (
        f"{changed}: {actual}"
        if changed
        else None
        if contains(after, before)
        else f"{before} became {after}"
    )


def test_decoding_change_is_detected_but_new_field_allowed() -> None:
    one = next(
        recorded
        for _, _, recorded in RECORDED_EVENTS
        if recorded.event_type == "document.indexed.v1"
    )
    data = one.decoded["data"]
    assert (
        find_difference(one, {**one.decoded, "traceparent_of": "new", "data": data | {"fresh": 1}})
        is None
    )
    assert find_difference(one, {**one.decoded, "data": data | {"chunks_count": 77}}) is not None
    assert (
        find_difference(
            one,
            {
                **one.decoded,
                "data": {name: value for name, value in data.items() if name != "chunks_count"},
            },
        )
        is not None
    )
    assert find_difference(one, {**one.decoded, "tenant": "other"}) is not None
    assert find_difference(one, {"error": "MALFORMED_EVENT"}) is not None


def contains(actual: Any, expected: Any) -> bool:
    """Tell whether `actual` still contains all of `expected`."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        return all(
            name in actual and contains(actual[name], value) for name, value in expected.items()
        )
    if isinstance(actual, list) and isinstance(expected, list):
        return len(actual) == len(expected) and all(map(contains, actual, expected))
    return bool(actual == expected)


@pytest.mark.parametrize("recording", list_recordings(), ids=lambda path: path.name)
@PER_EVENT
def test_schema_change_is_compatible_or_has_new_version(
    event: type[EventData], recording: Path
) -> None:
    file = recording / "schemas" / get_schema_file_name(event)
    if not file.exists():
        pytest.skip("the event, or its version, is newer than this recording")
    then, now = json.loads(file.read_text()), event.model_json_schema(mode="validation")
    assert then["$schema"] == JSON_SCHEMA
    assert find_incompatibilities(then, now) == find_removed_fields(then, now) == [], (
        f"give {event.name} a new version, with an upcast from {event.event_type()}"
    )


@pytest.mark.parametrize("recording", list_recordings(), ids=lambda path: path.name)
def test_no_recorded_event_type_is_removed(recording: Path) -> None:
    schema_names = {
        get_schema_file_name(event).replace(event.event_type(), kind)
        for event in EVENT_CLASSES
        for kind in list_versions(event)
    }
    assert {path.name for path in (recording / "schemas").iterdir()} <= schema_names
