"""Versions of events: older ones are read as the newest, newer ones are never guessed at."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import MalformedEvent, NewerVersion
from schemas.events import Event, Fact
from schemas.records import Position, Record, StoredRecord
from streams.codec import Codec
from streams.keys import SealingKeys
from tests.unit.test_keys import MASTER, Shelf

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def _labelled(payload: dict[str, Any]) -> dict[str, Any]:
    return {"label": payload["title"]}


def _measured(payload: dict[str, Any]) -> dict[str, Any]:
    return payload | {"letters": len(payload["label"])}


class WeighedOnce(Event, name="document.weighed", topic="accepted"):
    title: str


class Weighed(Event, name="document.weighed", topic="accepted", version=3, upcasts={1: _labelled, 2: _measured}):
    """Its first version had a title, its second a label, its third says how long that is."""

    label: str
    letters: int


class Handed(Event, name="document.handed", topic="raw", version=2, upcasts={1: _labelled}):
    label: str


OLDER, NEWER = (WeighedOnce,), (Weighed, Handed)


def stored(payload: Any, event_type: str, topic: str = "accepted", source: str = "anabranch/test") -> StoredRecord:
    headers = {"specversion": "1.0", "id": str(UUID(int=4)), "source": source, "type": event_type}
    record = Record(topic, b"k", json.dumps(payload).encode(), {f"ce_{name}": value.encode() for name, value in headers.items()})
    return StoredRecord(record, Position(topic, 0, 7), NOW)


@pytest.mark.parametrize(
    ("version", "payload"), [(1, {"title": "heron"}), (2, {"label": "heron"}), (3, {"label": "heron", "letters": 5})], ids=["first", "second", "third"]
)
async def test_every_older_version_is_read_as_the_newest(version: int, payload: Any) -> None:
    fact = await Codec(events=NEWER).decode(stored(payload, f"document.weighed.v{version}"))
    assert fact.data == Weighed(label="heron", letters=5)


async def test_a_sealed_event_of_an_older_version_opens_under_the_name_that_it_was_sealed_with() -> None:
    keys = SealingKeys(Shelf(), MASTER)
    written: Fact[Any] = Fact(UUID(int=4), WeighedOnce(title="heron"), "anabranch/test", str(UUID(int=4)), NOW, "default", UUID(int=9))
    record = await Codec(keys, OLDER).encode(written, "accepted", "k")
    assert b"heron" not in (record.value or b"")
    fact = await Codec(keys, NEWER).decode(StoredRecord(record, Position("accepted", 0, 7), NOW))
    assert fact.data == Weighed(label="heron", letters=5)


async def test_what_a_producer_sent_is_the_same_event_after_an_upgrade() -> None:
    sent = stored({"title": "heron"}, "document.handed.v1", "raw", "shop")
    first = await Codec(events=NEWER).decode(sent)
    assert first.data == Handed(label="heron")

    class Later(Event, name="document.handed", topic="raw", version=3, upcasts={1: _labelled, 2: _measured}):
        label: str
        letters: int

    again = await Codec(events=(Later,)).decode(sent)
    assert again.data == Later(label="heron", letters=5) and again.payload_sha256 == first.payload_sha256


def test_a_version_without_a_way_from_each_older_one_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match=r"document.weighed.v3 has no upcast from version 1"):
        type("Hasty", (Event,), {"__annotations__": {"label": str}}, name="document.weighed", topic="accepted", version=3, upcasts={2: _measured})


@pytest.mark.parametrize("payload", [{}, [], {"title": 7}, None], ids=["empty", "a list", "a number", "null"])
async def test_an_older_version_that_was_never_valid_is_malformed(payload: Any) -> None:
    with pytest.raises(MalformedEvent):
        await Codec(events=NEWER).decode(stored(payload, "document.weighed.v1"))


@pytest.mark.parametrize(
    ("event_type", "source"),
    [("document.weighed.v2", "anabranch/test"), ("document.weighed.v2", "shop"), ("document.split.v1", "anabranch/test")],
    ids=["a version", "whoever writes it", "a type of ours"],
)
async def test_what_is_newer_on_our_own_topics_waits_for_a_newer_program(event_type: str, source: str) -> None:
    with pytest.raises(NewerVersion):
        await Codec(events=OLDER).decode(stored({}, event_type, source=source))


async def test_what_is_newer_waits_also_where_its_key_is_not_there_yet() -> None:
    record = stored({}, "document.weighed.v2")
    record.record.headers["ce_keyid"] = str(UUID(int=8)).encode()  # type: ignore[index]
    with pytest.raises(NewerVersion):
        await Codec(SealingKeys(Shelf(), MASTER), OLDER).decode(record)


@pytest.mark.parametrize(
    ("event_type", "topic", "source", "code"),
    [
        ("document.handed.v3", "raw", "shop", "UNKNOWN_VERSION"),
        ("document.handed.v3", "raw", "anabranch/api", "UNKNOWN_VERSION"),
        ("document.handed.v0", "raw", "shop", "UNKNOWN_VERSION"),
        ("document.weighed.v0", "accepted", "anabranch/test", "UNKNOWN_VERSION"),
        ("document.split.v1", "accepted", "shop", "UNKNOWN_TYPE"),
        ("document.split.v1", "raw", "anabranch/api", "UNKNOWN_TYPE"),
        ("weighed", "accepted", "anabranch/test", "UNKNOWN_TYPE"),
    ],
)
async def test_what_no_program_will_ever_read_is_malformed(event_type: str, topic: str, source: str, code: str) -> None:
    with pytest.raises(MalformedEvent) as caught:
        await Codec(events=NEWER).decode(stored({}, event_type, topic, source))
    assert caught.value.code == code
