"""Recorded logs: events as their bytes were when a version of the program wrote them, and what they said. They are made once and never rewritten."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from schemas.errors import Erased, PermanentError
from schemas.events import Event, Fact, declared
from schemas.ports.keys import StoredKey
from schemas.records import Position, Record, StoredRecord
from sql.log_records import decode_headers, encode_headers
from streams.codec import Codec, base_topic
from streams.keys import SealingKeys

RECORDED = Path(__file__).with_name("recorded")
LOGS = ("clear", "sealed")
NOBODY = UUID(int=0)
NOT_SAID = ("data", "position", "appended_at", "key")
"""Of a fact: where it stands, and what it was sealed with."""


@dataclass(frozen=True)
class Recorded:
    """A record, and what it said: the fields of a fact, or `{"error": code}`."""

    stored: StoredRecord
    means: Mapping[str, Any]

    @property
    def topic(self) -> str:
        return base_topic(self.stored.position.topic)

    @property
    def kind(self) -> str | None:
        """Its CloudEvents type, where it could be read."""
        return self.means.get("type")

    def to_line(self) -> str:
        record, value = self.stored.record, self.stored.record.value or b""
        told = {
            "topic": record.topic,
            "offset": self.stored.position.offset,
            "appended_at": self.stored.appended_at.isoformat(),
            "key": record.key.decode() if record.key is not None else None,
            "headers": json.loads(encode_headers(record.headers)),
            **({"value": value.decode()} if _is_text(value) else {"base64": b64encode(value).decode()}),
            "means": self.means,
        }
        return json.dumps(told, ensure_ascii=False)

    @classmethod
    def of_line(cls, line: str) -> Recorded:
        told = json.loads(line)
        value = told["value"].encode() if "value" in told else b64decode(told["base64"])
        key = told["key"].encode() if told["key"] is not None else None
        record = Record(told["topic"], key, value, decode_headers(json.dumps(told["headers"])))
        place = Position(told["topic"], 0, told["offset"])
        return cls(StoredRecord(record, place, datetime.fromisoformat(told["appended_at"])), told["means"])


def _is_text(value: bytes) -> bool:
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def recordings() -> list[Path]:
    """One folder a recording, the oldest first."""
    return sorted(path for path in RECORDED.iterdir() if path.is_dir())


def log_of(recording: Path, name: str) -> list[Recorded]:
    return [Recorded.of_line(line) for line in (recording / f"{name}.jsonl").read_text().splitlines()]


def everything() -> Iterator[tuple[Path, str, Recorded]]:
    for recording in recordings():
        for name in LOGS:
            for one in log_of(recording, name):
                yield recording, name, one


def meaning(fact: Fact[Any]) -> dict[str, Any]:
    envelope = {name: value for name, value in asdict(replace(fact, data=None)).items() if name not in NOT_SAID}
    said = {"type": fact.data.event_type(), **envelope, "data": fact.data.model_dump(mode="json")}
    return dict(json.loads(json.dumps(said, default=_plain)))


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


async def meant(codec: Codec, stored: StoredRecord) -> dict[str, Any]:
    try:
        return meaning(await codec.decode(stored))
    except (PermanentError, Erased) as error:
        return {"error": error.code}


class KeptKeys:
    """The keystore of a recording, which makes no new keys."""

    def __init__(self, keys: Iterable[StoredKey]) -> None:
        self.keys = {key.id: key for key in keys}

    async def obtain(self, proposed: Sequence[StoredKey]) -> list[StoredKey]:
        raise AssertionError("nothing is sealed anew")

    async def find(self, ids: Sequence[UUID]) -> Mapping[UUID, StoredKey]:
        return {identity: self.keys[identity] for identity in ids if identity in self.keys}

    async def current(self, tenant: str, subjects: Sequence[UUID]) -> list[UUID]:
        return [key.id for key in self.keys.values() if key.subject in subjects and key.wrapped is not None]

    async def destroy(self, tenant: str, keys: Iterable[UUID]) -> None:
        for identity in keys:
            self.keys[identity] = StoredKey(identity, tenant, NOBODY, None)


def keys_of(recording: Path) -> tuple[bytes, list[StoredKey]]:
    """The master key, and what it wraps. They were made for this recording, and keep nothing else."""
    told = json.loads((recording / "keys.json").read_text())
    wrapped = [None if key["wrapped"] is None else b64decode(key["wrapped"]) for key in told["keys"]]
    subjects = [NOBODY if key["subject"] is None else UUID(key["subject"]) for key in told["keys"]]
    found = [StoredKey(UUID(key["id"]), key["tenant"], subject, value) for key, subject, value in zip(told["keys"], subjects, wrapped, strict=True)]
    return b64decode(told["master"]), found


def codec_of(recording: Path, events: Sequence[type[Event]] = declared()) -> Codec:
    master, keys = keys_of(recording)
    return Codec(SealingKeys(KeptKeys(keys), master), events)
