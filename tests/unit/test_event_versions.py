"""Event versions: older events are upcast, newer ones are refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from schemas.errors import MalformedEvent, NewerVersion
from schemas.events import Event, EventData
from schemas.topics import ACCEPTED, RAW, Position, Record, StoredRecord
from streams.codec import Codec
from streams.payload_keys import SealingKeys
from tests.fakes.key_store import MASTER_KEY, MemoryKeyStore

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def _upcast_title_to_label(payload: dict[str, Any]) -> dict[str, Any]:
    return {"label": payload["title"]}


def _upcast_add_letters(payload: dict[str, Any]) -> dict[str, Any]:
    return payload | {"letters": len(payload["label"])}


class WeighedV1(EventData, name="document.weighed", topic=ACCEPTED):
    title: str


class Weighed(
    EventData,
    name="document.weighed",
    topic=ACCEPTED,
    version=3,
    upcasts={1: _upcast_title_to_label, 2: _upcast_add_letters},
):
    """Version 1 had a title, version 2 a label, version 3 adds the label's length."""

    label: str
    letters: int


class HandedOver(
    EventData, name="document.handed", topic=RAW, version=2, upcasts={1: _upcast_title_to_label}
):
    label: str


OLDER, NEWER = (WeighedV1,), (Weighed, HandedOver)


def make_stored_record(
    payload: Any, event_type: str, topic: str = "accepted", source: str = "anabranch/test"
) -> StoredRecord:
    headers = {"specversion": "1.0", "id": str(UUID(int=4)), "source": source, "type": event_type}
    record = Record(
        topic,
        b"k",
        json.dumps(payload).encode(),
        {f"ce_{name}": value.encode() for name, value in headers.items()},
    )
    return StoredRecord(record, Position(topic, 0, 7), NOW)


@pytest.mark.parametrize(
    ("version", "payload"),
    [(1, {"title": "heron"}), (2, {"label": "heron"}), (3, {"label": "heron", "letters": 5})],
    ids=["first", "second", "third"],
)
async def test_older_versions_are_upcast_to_newest(version: int, payload: Any) -> None:
    event = await Codec(event_classes=NEWER).decode(
        make_stored_record(payload, f"document.weighed.v{version}")
    )
    assert event.data == Weighed(label="heron", letters=5)


async def test_sealed_event_of_older_version_opens_with_original_type() -> None:
    keys = SealingKeys(MemoryKeyStore(), MASTER_KEY)
    written: Event[Any] = Event(
        UUID(int=4),
        WeighedV1(title="heron"),
        "anabranch/test",
        str(UUID(int=4)),
        NOW,
        "default",
        UUID(int=9),
    )
    record = await Codec(keys, OLDER).encode(written, "accepted", "k")
    assert b"heron" not in (record.value or b"")
    event = await Codec(keys, NEWER).decode(StoredRecord(record, Position("accepted", 0, 7), NOW))
    assert event.data == Weighed(label="heron", letters=5)


async def test_payload_hash_is_stable_across_upcasts() -> None:
    sent = make_stored_record({"title": "heron"}, "document.handed.v1", "raw", "shop")
    first = await Codec(event_classes=NEWER).decode(sent)
    assert first.data == HandedOver(label="heron")

    class Later(
        EventData,
        name="document.handed",
        topic=RAW,
        version=3,
        upcasts={1: _upcast_title_to_label, 2: _upcast_add_letters},
    ):
        label: str
        letters: int

    again = await Codec(event_classes=(Later,)).decode(sent)
    assert (
        again.data == Later(label="heron", letters=5)
        and again.payload_sha256 == first.payload_sha256
    )


def test_missing_upcast_is_rejected_at_declaration() -> None:
    with pytest.raises(TypeError, match=r"document.weighed.v3 has no upcast from version 1"):
        type(
            "Hasty",
            (EventData,),
            {"__annotations__": {"label": str}},
            name="document.weighed",
            topic=ACCEPTED,
            version=3,
            upcasts={2: _upcast_add_letters},
        )


@pytest.mark.parametrize(
    "payload", [{}, [], {"title": 7}, None], ids=["empty", "a list", "a number", "null"]
)
async def test_invalid_payload_of_older_version_is_malformed(payload: Any) -> None:
    with pytest.raises(MalformedEvent):
        await Codec(event_classes=NEWER).decode(make_stored_record(payload, "document.weighed.v1"))


@pytest.mark.parametrize(
    ("event_type", "source"),
    [
        ("document.weighed.v2", "anabranch/test"),
        ("document.weighed.v2", "shop"),
        ("document.split.v1", "anabranch/test"),
    ],
    ids=["a version", "any producer", "a type of ours"],
)
async def test_newer_internal_version_waits_for_upgrade(event_type: str, source: str) -> None:
    with pytest.raises(NewerVersion):
        await Codec(event_classes=OLDER).decode(make_stored_record({}, event_type, source=source))


async def test_newer_version_waits_even_without_its_key() -> None:
    record = make_stored_record({}, "document.weighed.v2")
    record.record.headers["ce_keyid"] = str(UUID(int=8)).encode()  # type: ignore[index]
    with pytest.raises(NewerVersion):
        await Codec(SealingKeys(MemoryKeyStore(), MASTER_KEY), OLDER).decode(record)


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
async def test_unknown_version_or_type_is_malformed(
    event_type: str, topic: str, source: str, code: str
) -> None:
    with pytest.raises(MalformedEvent) as caught:
        await Codec(event_classes=NEWER).decode(make_stored_record({}, event_type, topic, source))
    assert caught.value.code == code
