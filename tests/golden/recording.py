"""Recorded logs: the bytes of events as an earlier version wrote them, and their decoded fields.

A recording is made once and never rewritten.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from processors import EVENT_CLASSES
from schemas.errors import DataErased, PermanentError
from schemas.events import Event, EventData
from schemas.ports.keys import StoredKey
from schemas.topics import Position, Record, StoredRecord, get_base_topic
from sql.log.event_log import decode_headers, encode_headers
from streams.codec import Codec
from streams.payload_keys import SealingKeys

RECORDINGS_DIR = Path(__file__).with_name("recorded")
LOG_NAMES = ("clear", "sealed")
RECORD_COMMAND = "python -m tests.golden.recorder NAME"
NO_SUBJECT = UUID(int=0)
OMITTED_FIELDS = ("data", "position", "appended_at", "key")
"""Of a fact: where it stands, and what it was sealed with."""


@dataclass(frozen=True)
class RecordedEvent:
    """A record, and the fields of its event, or `{"error": code}`."""

    stored: StoredRecord
    decoded: Mapping[str, Any]

    @property
    def topic(self) -> str:
        return get_base_topic(self.stored.position.topic)

    @property
    def event_type(self) -> str | None:
        """Return the CloudEvents type, or None for an unreadable record."""
        return self.decoded.get("type")

    def to_line(self) -> str:
        record, value = self.stored.record, self.stored.record.value or b""
        fields = {
            "topic": record.topic,
            "offset": self.stored.position.offset,
            "appended_at": self.stored.appended_at.isoformat(),
            "key": record.key.decode() if record.key is not None else None,
            "headers": json.loads(encode_headers(record.headers)),
            **(
                {"value": value.decode()}
                if _is_text(value)
                else {"base64": b64encode(value).decode()}
            ),
            "means": self.decoded,
        }
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_line(cls, line: str) -> RecordedEvent:
        fields = json.loads(line)
        value = fields["value"].encode() if "value" in fields else b64decode(fields["base64"])
        key = fields["key"].encode() if fields["key"] is not None else None
        record = Record(fields["topic"], key, value, decode_headers(json.dumps(fields["headers"])))
        position = Position(fields["topic"], 0, fields["offset"])
        return cls(
            StoredRecord(record, position, datetime.fromisoformat(fields["appended_at"])),
            fields["means"],
        )


def _is_text(value: bytes) -> bool:
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def list_recordings() -> list[Path]:
    """List the folders of the recordings, oldest first."""
    return sorted(path for path in RECORDINGS_DIR.iterdir() if path.is_dir())


def load_log(recording: Path, name: str) -> list[RecordedEvent]:
    return [
        RecordedEvent.from_line(line)
        for line in (recording / f"{name}.jsonl").read_text().splitlines()
    ]


def iter_recorded_events() -> Iterator[tuple[Path, str, RecordedEvent]]:
    for recording in list_recordings():
        for name in LOG_NAMES:
            for one in load_log(recording, name):
                yield recording, name, one


def describe_event(event: Event[Any]) -> dict[str, Any]:
    envelope = {
        name: value
        for name, value in asdict(replace(event, data=None)).items()
        if name not in OMITTED_FIELDS
    }
    description = {
        "type": event.data.event_type(),
        **envelope,
        "data": event.data.model_dump(mode="json"),
    }
    return dict(json.loads(json.dumps(description, default=_to_json_value)))


def _to_json_value(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


async def decode_or_error(codec: Codec, stored: StoredRecord) -> dict[str, Any]:
    try:
        return describe_event(await codec.decode(stored))
    except (PermanentError, DataErased) as error:
        return {"error": error.code}


class RecordedKeyStore:
    """The keystore of a recording, which makes no new keys."""

    def __init__(self, keys: Iterable[StoredKey]) -> None:
        self.keys = {key.id: key for key in keys}

    async def get_or_create(self, proposed: Sequence[StoredKey]) -> list[StoredKey]:
        raise AssertionError("nothing is sealed anew")

    async def fetch(self, ids: Sequence[UUID]) -> Mapping[UUID, StoredKey]:
        return {identity: self.keys[identity] for identity in ids if identity in self.keys}

    async def fetch_current_ids(self, tenant: str, subjects: Sequence[UUID]) -> list[UUID]:
        return [
            key.id
            for key in self.keys.values()
            if key.subject in subjects and key.wrapped_key is not None
        ]

    async def destroy(self, tenant: str, keys: Iterable[UUID]) -> None:
        for identity in keys:
            self.keys[identity] = StoredKey(identity, tenant, NO_SUBJECT, None)


def load_keys(recording: Path) -> tuple[bytes, list[StoredKey]]:
    """Return the master key and the keys it wraps, which protect this recording only."""
    fields = json.loads((recording / "keys.json").read_text())
    wrapped = [
        None if key["wrapped"] is None else b64decode(key["wrapped"]) for key in fields["keys"]
    ]
    subjects = [
        NO_SUBJECT if key["subject"] is None else UUID(key["subject"]) for key in fields["keys"]
    ]
    stored_keys = [
        StoredKey(UUID(key["id"]), key["tenant"], subject, value)
        for key, subject, value in zip(fields["keys"], subjects, wrapped, strict=True)
    ]
    return b64decode(fields["master"]), stored_keys


def make_codec(recording: Path, events: Sequence[type[EventData]] = EVENT_CLASSES) -> Codec:
    master, keys = load_keys(recording)
    return Codec(SealingKeys(RecordedKeyStore(keys), master), events)
