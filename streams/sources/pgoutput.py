"""Postgres' logical replication messages (protocol version 1 of `pgoutput`) as Debezium would write them.

Format: PostgreSQL manual, "Logical Replication Message Formats".
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.records import Record
from streams.sources.columns import PLACEHOLDER

Texts = Mapping[str, str | None]
_BOOL, _BYTEA, _JSON, _JSONB = 16, 17, 114, 3802
_INTEGERS = frozenset({20, 21, 23, 26})
_FLOATS = frozenset({700, 701})
_MOMENTS = frozenset({1114, 1184})
_SEMANTIC: Mapping[int, Mapping[str, str]] = {
    _BYTEA: {"type": "bytes"},
    _JSON: {"type": "string", "name": "io.debezium.data.Json"},
    _JSONB: {"type": "string", "name": "io.debezium.data.Json"},
}


def typed(text: str | None, oid: int) -> Any:
    """A value as the connector writes it; numerics and what else JSON has no kind for stay text."""
    if text is None or text == PLACEHOLDER:
        return text
    match oid:
        case _ if oid in _INTEGERS:
            return int(text)
        case _ if oid in _FLOATS:
            return float(text) if text not in ("NaN", "Infinity", "-Infinity") else text
        case _ if oid in _MOMENTS:
            return text.replace(" ", "T", 1)
        case 16:
            return text == "t" or text == "true"
        case 17:
            return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()
    return text


@dataclass(frozen=True, slots=True)
class TableShape:
    """Type oid by column, and the columns of the primary key, in its order."""

    schema: str
    table: str
    types: Mapping[str, int]
    key: Sequence[str]

    def record(self, op: str, row: Texts, sequence: int, *, snapshot: str = "false", old_key: Texts | None = None) -> Record:
        """A change event with the part of its schema that readers need. For a `d` the row is its key."""
        after = None if op in "dt" else {name: typed(row.get(name), oid) for name, oid in self.types.items()}
        source = {"connector": "postgresql", "schema": self.schema, "table": self.table, "lsn": sequence, "snapshot": snapshot}
        payload = {"before": None, "after": after, "source": source, "op": op}
        fields = [{"field": name, **_SEMANTIC[oid]} for name, oid in self.types.items() if oid in _SEMANTIC]
        value = {"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": payload}
        headers = {"__debezium.oldkey": self._key(old_key)} if old_key is not None else {}
        return Record(f"{self.schema}.{self.table}", None if op == "t" else self._key(row), json.dumps(value).encode(), headers)

    def _key(self, row: Texts) -> bytes:
        return json.dumps({name: typed(row[name], self.types[name]) for name in self.key}).encode()


Shaped = Callable[[Mapping[str, int]], TableShape]
"""From the columns (type oid by name) that the table has from here on; may raise what keeps such a table from being followed."""


class PgOutput:
    """Decodes the messages of one publication, in order. Only the one table counts; what columns it has the messages say, for they may be altered on the way."""

    def __init__(self, schema: str, table: str, shaped: Shaped) -> None:
        self._place, self._shaped = (schema, table), shaped
        self._relations: dict[int, tuple[TableShape | None, list[str]]] = {}

    def records(self, sequence: int, message: bytes) -> list[Record]:
        """Change events of one message: none for what only frames a transaction, two for a row whose key changes."""
        kind, read = message[:1], _Reader(message)
        if kind == b"R":
            self._relation(read)
            return []
        if kind == b"T":
            return self._truncated(read, sequence)
        decode = {b"I": self._inserted, b"U": self._updated, b"D": self._deleted}.get(kind)
        return decode(read, sequence) if decode else []

    def _relation(self, read: _Reader) -> None:
        oid, schema, table = read.number(">I"), read.name(), read.name()
        read.number(">b")
        types = {}
        for _ in range(read.number(">h")):
            read.number(">b")
            name = read.name()
            types[name] = read.number(">I")
            read.number(">i")
        self._relations[oid] = (self._shaped(types) if (schema, table) == self._place else None, list(types))

    def _inserted(self, read: _Reader, sequence: int) -> list[Record]:
        shape, columns = self._relations[read.number(">I")]
        read.number(">b")
        return [shape.record("c", read.row(columns), sequence)] if shape else []

    def _updated(self, read: _Reader, sequence: int) -> list[Record]:
        shape, columns = self._relations[read.number(">I")]
        tag, old = read.take(1), None
        if tag in (b"K", b"O"):
            old = read.row(columns)
            whole = tag == b"O"
            read.take(1)
        row = read.row(columns)
        if shape is None:
            return []
        if old is None:
            return [shape.record("u", row, sequence)]
        if whole:
            row = {name: old[name] if text == PLACEHOLDER else text for name, text in row.items()}
        if all(old[name] == row[name] for name in shape.key):
            return [shape.record("u", row, sequence)]
        return [shape.record("d", old, sequence), shape.record("c", row, sequence, old_key=old)]

    def _deleted(self, read: _Reader, sequence: int) -> list[Record]:
        shape, columns = self._relations[read.number(">I")]
        read.take(1)
        return [shape.record("d", read.row(columns), sequence)] if shape else []

    def _truncated(self, read: _Reader, sequence: int) -> list[Record]:
        count = read.number(">I")
        read.number(">b")
        emptied = [shape for oid in [read.number(">I") for _ in range(count)] if (shape := self._relations.get(oid, (None, []))[0])]
        return [emptied[0].record("t", {}, sequence)] if emptied else []


class _Reader:
    """A message from its second byte on."""

    def __init__(self, message: bytes) -> None:
        self._message, self._at = message, 1

    def take(self, length: int) -> bytes:
        self._at += length
        return self._message[self._at - length : self._at]

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def name(self) -> str:
        end = self._message.index(0, self._at)
        name = self._message[self._at : end].decode()
        self._at = end + 1
        return name

    def row(self, columns: Sequence[str]) -> dict[str, str | None]:
        count = self.number(">h")
        assert count == len(columns), "a row has the columns of its relation"
        return {name: self._value() for name in columns}

    def _value(self) -> str | None:
        match self.take(1):
            case b"n":
                return None
            case b"u":
                return PLACEHOLDER
        return self.take(self.number(">i")).decode()
