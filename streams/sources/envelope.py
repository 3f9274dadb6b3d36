"""Debezium's change events (JSON converter, with and without schema) as what they say of a row.

`c` and `u` leave a row as `after` has it, `r` is read by a snapshot, `d` ends the row, `t` empties the table. What `before` holds is never read: with the
default replica identity its values are nulls and zeros. A tombstone (no value) follows a `d` and says nothing new.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from schemas.errors import MalformedEvent
from schemas.records import Record
from schemas.sources import Change, RowMapping
from streams.sources.columns import as_text, readable, unavailable, written

Json = Mapping[str, Any]
LONGEST_KEY = 900
"""Bytes of a row's key: a key of an index, with room for the rest."""
_LAST_READ = frozenset({"last", "last_in_data_collection"})
_READ = frozenset({"true", "first", "first_in_data_collection", *_LAST_READ})


@dataclass(frozen=True, slots=True)
class Truncation:
    table: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """The last row of a table that a full snapshot reads; its rows in other partitions may come later."""

    table: str
    epoch: int
    sequence: int


Saying = Change | Truncation | SnapshotEnd


def sayings(record: Record, epoch: int, mapping: RowMapping) -> list[Saying]:
    """What a record of a change topic says. Raises MalformedEvent for what is no change event of a connector that numbers its changes."""
    if record.value is None:
        return []
    value = _object(_loaded(record.value, "the value"), "the value")
    envelope, schema = _payload(value)
    op = envelope.get("op")
    source = envelope.get("source")
    if op == "m" or (op is None and "tableChanges" in envelope):
        return []
    if op not in ("c", "u", "d", "r", "t") or not isinstance(source, Mapping):
        raise MalformedEvent(
            f"no Debezium change event: op is {op!r}", code="MALFORMED_CHANGE", remedy="Point the source at the connector's own topic, not at a flattened one."
        )
    table, sequence = _table(source), _position(source)
    if op == "t":
        return [Truncation(table, epoch, sequence)]
    change = _change(op, record, envelope, schema, mapping, (table, epoch, sequence))
    return [change, SnapshotEnd(table, epoch, sequence)] if _snapshot(source) in _LAST_READ else [change]


def _change(op: Literal["c", "u", "d", "r"], record: Record, envelope: Json, schema: Json | None, mapping: RowMapping, place: tuple[str, int, int]) -> Change:
    table, epoch, sequence = place
    key, key_values = _key(record)
    read = op == "r" and _snapshot(envelope["source"]) in _READ
    if op == "d":
        return Change(key, table, epoch, sequence, gone=True)
    after = _object(envelope.get("after"), "`after`")
    columns, unknown = _columns(after, _fields(schema, "after"), mapping, list(key_values))
    return Change(key, table, epoch, sequence, read=read, columns=columns, unknown=unknown, old_key=_old_key(record, op))


def _columns(after: Json, fields: Mapping[str, Json], mapping: RowMapping, key_columns: list[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    wanted = [*mapping.columns, *(key_columns if not mapping.id else [])]
    if missing := [name for name in wanted if name not in after]:
        raise MalformedEvent(
            f"the row has no column {', '.join(missing)}; it has {', '.join(sorted(after))}",
            code="NO_SUCH_COLUMN",
            remedy="Remove the source and add it with the columns that the table has.",
        )
    unknown = tuple(name for name in wanted if unavailable(after[name]))
    known = {name: written(readable(after[name], fields.get(name), mapping.encodings.get(name))) for name in dict.fromkeys(wanted) if name not in unknown}
    return known, unknown


def _key(record: Record) -> tuple[str, Json]:
    if record.key is None:
        raise MalformedEvent(
            "the change has no key", code="MALFORMED_CHANGE", remedy="Give the table a primary key, or name columns in the connector's message.key.columns."
        )
    values, _ = _payload(_object(_loaded(record.key, "the key"), "the key"))
    return row_key(values), values


def row_key(values: Json) -> str:
    """A row's name: its key columns, joined by `/` in their order. Raises MalformedEvent for one that is longer than an index takes."""
    name = "/".join(as_text(value).replace("%", "%25").replace("/", "%2F") if len(values) > 1 else as_text(value) for value in values.values())
    if not name or "\0" in name or len(name.encode(errors="replace")) > LONGEST_KEY:
        raise MalformedEvent(
            f"the row's key has {len(name.encode(errors='replace'))} bytes; 1 to {LONGEST_KEY} are allowed, none of them zero", code="MALFORMED_CHANGE"
        )
    return str(written(name))


def _old_key(record: Record, op: str) -> str | None:
    header = record.headers.get("__debezium.oldkey")
    if op != "c" or not header:
        return None
    return row_key(_payload(_object(_loaded(header, "header __debezium.oldkey"), "the old key"))[0])


def _loaded(text: bytes, what: str) -> Any:
    try:
        # Numbers that JSON does not have stay words.
        return json.loads(text.decode(), parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent(f"{what} is not JSON: {error}", code="MALFORMED_CHANGE", remedy="Set the connector's converters to JSON.") from error


def _object(value: Any, what: str) -> Json:
    if not isinstance(value, Mapping):
        raise MalformedEvent(f"{what} of the change is no object", code="MALFORMED_CHANGE")
    return value


def _payload(value: Json) -> tuple[Json, Json | None]:
    """The payload, and its schema where the converter writes one."""
    if set(value) == {"schema", "payload"}:
        schema = value["schema"]
        return _object(value["payload"], "the payload"), schema if isinstance(schema, Mapping) else None
    return value, None


def _fields(schema: Json | None, part: str) -> Mapping[str, Json]:
    for field in (schema or {}).get("fields") or []:
        if field.get("field") == part:
            return {column["field"]: column for column in field.get("fields") or []}
    return {}


def _snapshot(source: Json) -> str:
    return str(source.get("snapshot", "false")).lower()


def _table(source: Json) -> str:
    return ".".join(str(source[part]) for part in ("schema", "table", "collection") if source.get(part))


def _position(source: Json) -> int:
    """The place of the change in its database's log, as one number that grows. What it is made of shows which database it was."""
    for fields, place in _POSITIONS:
        if all(source.get(field) is not None for field in fields):
            try:
                number = place(source)
            except (TypeError, ValueError):
                break
            if 0 <= number < 2**63:
                return number
    raise MalformedEvent(
        f"a change of connector {source.get('connector')!r} has no number to order it by",
        code="NO_POSITION",
        remedy="Connectors that number their changes are those for PostgreSQL, MySQL, MariaDB, SQL Server, Oracle, Db2 and Informix.",
    )


def _binlog(source: Json) -> int:
    """File number, offset in the file, row of the event; MySQL and MariaDB. Cassandra's files belong to single nodes and end in no number."""
    file = int(str(source["file"]).rpartition(".")[2])
    return file << 46 | int(source["pos"]) << 14 | min(int(source.get("row") or 0), 2**14 - 1)


def _log_sequence(source: Json) -> int:
    """SQL Server and Db2: virtual log file, block, slot, in hexadecimal digits; Informix: one number. Of the change, or of the snapshot."""
    parts = str(source.get("change_lsn") or source["commit_lsn"]).split(":")
    if len(parts) == 1:
        return int(parts[0])
    file, block, slot = (int(part, 16) for part in parts)
    return file << 40 | block << 12 | min(slot, 2**12 - 1)


_POSITIONS: Final[tuple[tuple[tuple[str, ...], Callable[[Json], int]], ...]] = (
    (("lsn",), lambda source: int(source["lsn"])),
    (("file", "pos"), _binlog),
    (("scn",), lambda source: int(source["scn"])),
    (("commit_lsn",), _log_sequence),
    (("change_lsn",), _log_sequence),
)
