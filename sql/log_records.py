"""Convert between records and rows of the events table."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

import asyncpg

from schemas.records import Headers, Position, Record, StoredRecord

EncodedHeader = str | dict[str, str]


def encode_headers(headers: Headers) -> str:
    """Encode headers as readable JSON; values that are not text are marked as base64."""
    return json.dumps({name: _encode(value) for name, value in headers.items()}, ensure_ascii=False)


def decode_headers(text: str) -> dict[str, bytes]:
    return {name: _decode(value) for name, value in json.loads(text).items()}


def to_stored_record(topic: str, row: asyncpg.Record) -> StoredRecord:
    return StoredRecord(
        Record(topic, row["key"], row["value"], decode_headers(row["headers"])),
        Position(topic, 0, row["position"]),
        row["appended_at"],
    )


def _encode(value: bytes) -> EncodedHeader:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}
    return text if "\0" not in text else {"base64": b64encode(value).decode()}


def _decode(value: EncodedHeader) -> bytes:
    return value.encode() if isinstance(value, str) else b64decode(value["base64"])
