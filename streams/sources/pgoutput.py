"""Decoder of Postgres' logical replication messages (`pgoutput` version 1) into Debezium's change
events.

Format: PostgreSQL manual, "Logical Replication Message Formats".
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.topics import Record
from streams.sources.column_values import PLACEHOLDER

Texts = Mapping[str, str | None]
# Object ids of built-in types, which never change (pg_type.dat).
_BOOL, _BYTEA, _JSON, _JSONB = 16, 17, 114, 3802
_INTEGERS = frozenset({20, 21, 23, 26})
_FLOATS = frozenset({700, 701})
_TIMESTAMPS = frozenset({1114, 1184})
_ELEMENTS: Mapping[int, int] = {
    1000: _BOOL,
    1001: _BYTEA,
    1005: 21,
    1007: 23,
    1009: 25,
    1014: 1042,
    1015: 1043,
    1016: 20,
    1021: 700,
    1022: 701,
    1115: 1114,
    1182: 1082,
    1183: 1083,
    1185: 1184,
    1187: 1186,
    1231: 1700,
    199: _JSON,
    2951: 2950,
    3807: _JSONB,
}
"""Type of the elements by array type."""
_ARRAY_TOKEN = re.compile(r'[{},]|"((?:[^"\\]|\\.?)*+)(?:"|\Z)|[^{},"]+', re.DOTALL)
_SEMANTIC_TYPES: Mapping[int, Mapping[str, str]] = {
    _BYTEA: {"type": "bytes"},
    _JSON: {"type": "string", "name": "io.debezium.data.Json"},
    _JSONB: {"type": "string", "name": "io.debezium.data.Json"},
}


def parse_value(text: str | None, oid: int) -> Any:
    """Convert a value to what Debezium writes. Types that JSON lacks, as numerics, stay text."""
    if text is None or text == PLACEHOLDER:
        return text
    if (element_type := _ELEMENTS.get(oid)) is not None:
        return _parse_array(text, element_type)
    match oid:
        case _ if oid in _INTEGERS:
            return int(text)
        case _ if oid in _FLOATS:
            return float(text) if text not in ("NaN", "Infinity", "-Infinity") else text
        case _ if oid in _TIMESTAMPS:
            # The session's time zone is UTC, which the connector writes as Z.
            return text.replace(" ", "T", 1).replace("+00", "Z")
        case 16:
            # "t" in the stream; a cast to text in the snapshot gives "true".
            return text == "t" or text == "true"
        case 17:
            return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()
    return text


def _parse_array(text: str, element_type: int) -> list[Any]:
    """Parse an array literal such as `{1,NULL,"a b"}`, of any number of dimensions."""
    stack: list[list[Any]] = [[]]
    # Other lower bounds than 1 precede the elements: `[0:1]={1,2}`.
    for match in _ARRAY_TOKEN.finditer(text, text.index("{")):
        token, quoted = match[0], match[1]
        if token == "{":
            stack.append([])
        elif token == "}":
            array = stack.pop()
            stack[-1].append(array)
        elif quoted is not None:
            element = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            stack[-1].append(parse_value(element, element_type))
        elif token != ",":
            stack[-1].append(None if token == "NULL" else parse_value(token, element_type))
    return list(stack[0][0])


def _describe_type(oid: int) -> Mapping[str, Any] | None:
    """Return the schema of a column, None if its values are readable as they are."""
    if (items := _SEMANTIC_TYPES.get(_ELEMENTS.get(oid, 0))) is not None:
        return {"type": "array", "items": items}
    return _SEMANTIC_TYPES.get(oid)


@dataclass(frozen=True, slots=True)
class TableShape:
    """Type oid by column, and the columns of the primary key in order."""

    schema: str
    table: str
    types: Mapping[str, int]
    key: Sequence[str]

    def build_record(
        self,
        op: str,
        row: Texts,
        sequence: int,
        *,
        snapshot: str = "false",
        old_key: Texts | None = None,
    ) -> Record:
        """Build a change event with the parts of its schema that readers need.

        For `d`, `row` holds the key.
        """
        after = (
            None
            if op in "dt"
            else {name: parse_value(row.get(name), oid) for name, oid in self.types.items()}
        )
        source = {
            "connector": "postgresql",
            "schema": self.schema,
            "table": self.table,
            "lsn": sequence,
            "snapshot": snapshot,
        }
        payload = {"before": None, "after": after, "source": source, "op": op}
        fields = [
            {"field": name, **description}
            for name, oid in self.types.items()
            if (description := _describe_type(oid)) is not None
        ]
        value = {"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": payload}
        headers = {"__debezium.oldkey": self._format_key(old_key)} if old_key is not None else {}
        return Record(
            f"{self.schema}.{self.table}",
            None if op == "t" else self._format_key(row),
            json.dumps(value).encode(),
            headers,
        )

    def _format_key(self, row: Texts) -> bytes:
        return json.dumps(
            {name: parse_value(row[name], self.types[name]) for name in self.key}
        ).encode()


BuildShape = Callable[[Mapping[str, int]], TableShape]
"""Builds the shape from the table's new columns (type oid by name).

Raises if such a table cannot be followed.
"""


class PgOutputDecoder:
    """Decodes the messages of one publication, in order, and ignores all but one table.

    The columns come from relation messages, since the table may be altered in the stream.
    """

    def __init__(self, schema: str, table: str, build_shape: BuildShape) -> None:
        self._table_name, self._build_shape = (schema, table), build_shape
        self._relations: dict[int, tuple[TableShape | None, list[str]]] = {}

    def decode(self, sequence: int, message: bytes) -> list[Record]:
        """Decode one message: no events for transaction frames, two for a row whose key changes."""
        kind, reader = message[:1], _MessageReader(message)
        if kind == b"R":
            self._decode_relation(reader)
            return []
        if kind == b"T":
            return self._decode_truncate(reader, sequence)
        if kind == b"U":
            return self._decode_update(reader, sequence)
        if kind in (b"I", b"D"):
            shape, columns = self._relations[reader.read_number(">I")]
            reader.read_bytes(1)
            op = "c" if kind == b"I" else "d"
            return [shape.build_record(op, reader.read_row(columns), sequence)] if shape else []
        return []

    def _decode_relation(self, reader: _MessageReader) -> None:
        oid, schema, table = reader.read_number(">I"), reader.read_name(), reader.read_name()
        reader.read_number(">b")
        types = {}
        for _ in range(reader.read_number(">h")):
            reader.read_number(">b")
            name = reader.read_name()
            types[name] = reader.read_number(">I")
            reader.read_number(">i")
        self._relations[oid] = (
            # A publication may hold other tables: their messages are read and dropped.
            self._build_shape(types) if (schema, table) == self._table_name else None,
            list(types),
        )

    def _decode_update(self, reader: _MessageReader, sequence: int) -> list[Record]:
        shape, columns = self._relations[reader.read_number(">I")]
        tag, old_row = reader.read_bytes(1), None
        if tag in (b"K", b"O"):
            # Sent only if the key changed (K), or with `replica identity full` (O).
            old_row = reader.read_row(columns)
            is_full_row = tag == b"O"
            reader.read_bytes(1)
        row = reader.read_row(columns)
        if shape is None:
            return []
        if old_row is None:
            return [shape.build_record("u", row, sequence)]
        # The new row lacks unchanged TOASTed columns; with `replica identity full` the old row has
        # them.
        if is_full_row:
            row = {
                name: old_row[name] if text == PLACEHOLDER else text for name, text in row.items()
            }
        if all(old_row[name] == row[name] for name in shape.key):
            return [shape.build_record("u", row, sequence)]
        return [
            # Two events, as Debezium writes them; both have the sequence of this one change.
            shape.build_record("d", old_row, sequence),
            shape.build_record("c", row, sequence, old_key=old_row),
        ]

    def _decode_truncate(self, reader: _MessageReader, sequence: int) -> list[Record]:
        count = reader.read_number(">I")
        reader.read_number(">b")
        truncated_shapes = [
            shape
            for oid in [reader.read_number(">I") for _ in range(count)]
            # A TRUNCATE may name tables whose relation message was never sent.
            if (shape := self._relations.get(oid, (None, []))[0])
        ]
        return [truncated_shapes[0].build_record("t", {}, sequence)] if truncated_shapes else []


class _MessageReader:
    """Reads a message from its second byte on."""

    def __init__(self, message: bytes) -> None:
        self._message, self._offset = message, 1

    def read_bytes(self, length: int) -> bytes:
        self._offset += length
        return self._message[self._offset - length : self._offset]

    def read_number(self, struct_format: str) -> int:
        return int(struct.unpack(struct_format, self.read_bytes(struct.calcsize(struct_format)))[0])

    def read_name(self) -> str:
        end = self._message.index(0, self._offset)
        name = self._message[self._offset : end].decode()
        self._offset = end + 1
        return name

    def read_row(self, columns: Sequence[str]) -> dict[str, str | None]:
        count = self.read_number(">h")
        assert count == len(columns), "a row has the columns of its relation"
        return {name: self._read_value() for name in columns}

    def _read_value(self) -> str | None:
        match self.read_bytes(1):
            case b"n":
                return None
            case b"u":
                return PLACEHOLDER
        return self.read_bytes(self.read_number(">i")).decode()
