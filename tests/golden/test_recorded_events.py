"""Events as earlier versions of the program wrote them: each still says what it said, and what may be said has grown only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.events import Event, declared, event_types
from streams.asyncapi import JSON_SCHEMA, schema_file
from streams.codec import CLEAR_TOPICS
from streams.topics import RAW
from tests.golden.compatibility import lost, refusals
from tests.golden.recording import Recorded, codec_of, everything, meant, recordings

SEALED = b"application/octet-stream"
STRUCTURED = b"application/cloudevents+json"
EVERYTHING = list(everything())
READABLE = {(recorded.topic, recorded.kind, recorded.stored.record.headers.get("content-type")) for _, _, recorded in EVERYTHING if recorded.kind}
LATER = pytest.mark.parametrize("event", declared(), ids=schema_file)


def versions(event: type[Event]) -> list[str]:
    return [f"{event.name}.v{version}" for version in range(1, event.version + 1)]


@LATER
def test_every_version_of_every_event_was_recorded(event: type[Event]) -> None:
    wanted = {(event.topic, kind, b"application/json") for kind in versions(event)}
    if event.topic == RAW:
        wanted |= {(event.topic, kind, STRUCTURED) for kind in versions(event)}
    if event.topic not in CLEAR_TOPICS:
        wanted |= {(event.topic, kind, SEALED) for kind in versions(event)}
    assert wanted <= READABLE, "record them: python -m tests.golden.record NAME"


@pytest.mark.parametrize("recording", recordings(), ids=lambda path: path.name)
async def test_every_recorded_event_says_what_it_said(recording: Path) -> None:
    codec = codec_of(recording)
    changed = [
        (name, one.stored.position, difference)
        for folder, name, one in EVERYTHING
        if folder == recording and (difference := differs(one, await meant(codec, one.stored)))
    ]
    assert changed == []


def differs(recorded: Recorded, said: dict[str, Any]) -> str | None:
    """None where it says the same: of an older version, what its upcast makes of it; else all that was said, beside which new fields may have their defaults."""
    then, now = dict(recorded.means), dict(said)
    if "error" in then:
        return None if then == now else f"{then} became {now}"
    before, after = then.pop("data"), now.pop("data", None)
    event = next(one for (topic, _), one in event_types().items() if topic == recorded.topic and one.name == str(recorded.kind).rpartition(".v")[0])
    if event.event_type() != recorded.kind:
        then["type"] = event.event_type()
        before = event.upcast(before, int(str(recorded.kind).rpartition(".v")[2]))
    changed = [name for name, value in then.items() if name not in now or now[name] != value]
    return f"{changed}: {now}" if changed else None if holds(after, before) else f"{before} became {after}"


def test_a_meaning_that_changed_is_noticed_and_a_new_field_is_none() -> None:
    one = next(recorded for _, _, recorded in EVERYTHING if recorded.kind == "document.indexed.v1")
    data = one.means["data"]
    assert differs(one, {**one.means, "traceparent_of": "new", "data": data | {"fresh": 1}}) is None
    assert differs(one, {**one.means, "data": data | {"chunks_count": 77}}) is not None
    assert differs(one, {**one.means, "data": {name: value for name, value in data.items() if name != "chunks_count"}}) is not None
    assert differs(one, {**one.means, "tenant": "other"}) is not None
    assert differs(one, {"error": "MALFORMED_EVENT"}) is not None


def holds(now: Any, then: Any) -> bool:
    """Whether all that was said is still there."""
    if isinstance(now, dict) and isinstance(then, dict):
        return all(name in now and holds(now[name], value) for name, value in then.items())
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(map(holds, now, then))
    return bool(now == then)


@pytest.mark.parametrize("recording", recordings(), ids=lambda path: path.name)
@LATER
def test_a_schema_changes_compatibly_or_under_a_new_version(event: type[Event], recording: Path) -> None:
    file = recording / "schemas" / schema_file(event)
    if not file.exists():
        pytest.skip("the event, or its version, is newer than this recording")
    then, now = json.loads(file.read_text()), event.model_json_schema(mode="validation")
    assert then["$schema"] == JSON_SCHEMA
    # Names of tenants are fewer on purpose: two of the others could have shared a folder of the blob store.
    refused = [one for one in refusals(then, now) if not one.startswith("$.tenant: ")]
    assert refused == [] and lost(then, now) == [], f"give {event.name} a new version, with an upcast from {event.event_type()}"


@pytest.mark.parametrize("recording", recordings(), ids=lambda path: path.name)
def test_no_recorded_event_type_is_gone(recording: Path) -> None:
    known = {schema_file(event).replace(event.event_type(), kind) for event in declared() for kind in versions(event)}
    assert {path.name for path in (recording / "schemas").iterdir()} <= known
