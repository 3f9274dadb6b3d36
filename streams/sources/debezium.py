"""Parser of Debezium's change events (JSON converter, with and without schema).

Operations: `c` create, `u` update, `r` read by a snapshot, `d` delete, `t` truncate. `before` is
never read: with the default replica identity its values are nulls and zeros. A tombstone (no value)
follows a `d` and is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from schemas.errors import MalformedEvent
from schemas.sources import RowChange, RowMapping
from schemas.topics import Record
from streams.sources.column_values import (
    format_as_text,
    is_unavailable,
    replace_surrogates,
    to_json_value,
)

Json = Mapping[str, Any]
MAX_KEY_BYTES = 900
"""Size limit of a row's key, so that it fits into an index entry with other columns."""
_LAST_SNAPSHOT_MARKERS = frozenset({"last", "last_in_data_collection"})
_SNAPSHOT_MARKERS = frozenset(
    {"true", "first", "first_in_data_collection", *_LAST_SNAPSHOT_MARKERS}
)


@dataclass(frozen=True, slots=True)
class Truncation:
    table: str
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """Marks the last row of a table in a full snapshot. Other partitions' rows may arrive later."""

    table: str
    epoch: int
    sequence: int


ChangeEvent = RowChange | Truncation | SnapshotEnd


def parse_change_events(record: Record, epoch: int, mapping: RowMapping) -> list[ChangeEvent]:
    """Parse a record of a change topic.

    Raises MalformedEvent for records that are no change events with a position.
    """
    if record.value is None:
        return []
    value = _check_object(_parse_json(record.value, "value"), "value")
    envelope, schema = _split_payload(value)
    op = envelope.get("op")
    source = envelope.get("source")
    if op == "m" or (op is None and "tableChanges" in envelope):
        return []  # logical decoding messages and schema changes
    if op not in ("c", "u", "d", "r", "t") or not isinstance(source, Mapping):
        raise MalformedEvent(
            f"Not a Debezium change event: op is {op!r}.",
            code="MALFORMED_CHANGE",
            remedy="Use the connector's own topic, not a flattened one.",
        )
    table = ".".join(
        str(source[part]) for part in ("schema", "table", "collection") if source.get(part)
    )
    sequence = _compute_sequence(source)
    if op == "t":
        # No key, hence in any partition: ordered against the rows' events by sequence only.
        return [Truncation(table, epoch, sequence)]
    change = _parse_change(op, record, envelope, schema, mapping, (table, epoch, sequence))
    return (
        [change, SnapshotEnd(table, epoch, sequence)]
        if _get_snapshot_marker(source) in _LAST_SNAPSHOT_MARKERS
        else [change]
    )


def _parse_change(
    op: Literal["c", "u", "d", "r"],
    record: Record,
    envelope: Json,
    schema: Json | None,
    mapping: RowMapping,
    table_position: tuple[str, int, int],
) -> RowChange:
    table, epoch, sequence = table_position
    key, key_values = _parse_key(record)
    is_snapshot_read = op == "r" and _get_snapshot_marker(envelope["source"]) in _SNAPSHOT_MARKERS
    # Only the key is read: with the default replica identity `before` has no values.
    if op == "d":
        return RowChange(key, table, epoch, sequence, is_deleted=True)
    row = _check_object(envelope.get("after"), "field `after`")
    schema_fields = (schema or {}).get("fields") or []
    row_schemas = (field for field in schema_fields if field.get("field") == "after")
    row_schema: Json = next(row_schemas, {})
    column_schemas = {column["field"]: column for column in row_schema.get("fields") or []}
    columns, unknown = _parse_columns(row, column_schemas, mapping, list(key_values))
    return RowChange(
        key,
        table,
        epoch,
        sequence,
        is_snapshot_read=is_snapshot_read,
        columns=columns,
        unchanged_columns=unknown,
        old_key=_parse_old_key(record, op),
    )


def _parse_columns(
    row: Json, fields: Mapping[str, Json], mapping: RowMapping, key_columns: list[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    required_columns = [*mapping.columns, *(key_columns if not mapping.id else [])]
    if missing := [name for name in required_columns if name not in row]:
        raise MalformedEvent(
            f"The row has no column {', '.join(missing)}. Its columns: {', '.join(sorted(row))}.",
            code="NO_SUCH_COLUMN",
            remedy="Remove the source and add it again with columns that the table has.",
        )
    # Postgres does not send large values that did not change; Debezium sends a placeholder.
    unknown = tuple(name for name in required_columns if is_unavailable(row[name]))
    known_values = {
        name: replace_surrogates(
            to_json_value(row[name], fields.get(name), mapping.encodings.get(name))
        )
        for name in dict.fromkeys(required_columns)
        if name not in unknown
    }
    return known_values, unknown


def _parse_key(record: Record) -> tuple[str, Json]:
    if record.key is None:
        raise MalformedEvent(
            "The change has no key.",
            code="MALFORMED_CHANGE",
            remedy="Give the table a primary key, or set the connector's message.key.columns.",
        )
    values, _ = _split_payload(_check_object(_parse_json(record.key, "key"), "key"))
    return format_row_key(values), values


def format_row_key(values: Json) -> str:
    """Join the key columns of a row by `/`, in their order.

    Raises MalformedEvent if the result is empty or too long.
    """
    row_name = "/".join(
        # Escaped, or ("a/b", "c") and ("a", "b/c") would be the same row.
        format_as_text(value).replace("%", "%25").replace("/", "%2F")
        if len(values) > 1
        else format_as_text(value)
        for value in values.values()
    )
    if not row_name or "\0" in row_name or len(row_name.encode(errors="replace")) > MAX_KEY_BYTES:
        raise MalformedEvent(
            f"The row's key has {len(row_name.encode(errors='replace'))} bytes; 1 to "
            f"{MAX_KEY_BYTES} without NUL are allowed.",
            code="MALFORMED_CHANGE",
        )
    return str(replace_surrogates(row_name))


def _parse_old_key(record: Record, op: str) -> str | None:
    # A changed primary key arrives as `d` (old key) and `c` (new key), usually in different
    # partitions. The `c` may have placeholders for unchanged columns; their values are under the
    # old key.
    header = record.headers.get("__debezium.oldkey")
    if op != "c" or not header:
        return None
    return format_row_key(
        _split_payload(
            _check_object(
                _parse_json(header, "header __debezium.oldkey"), "header __debezium.oldkey"
            )
        )[0]
    )


def _parse_json(text: bytes, description: str) -> Any:
    try:
        # NaN and Infinity, which are not JSON, stay text.
        # A byte order mark, which some producers write, is no part of the JSON.
        return json.loads(text.decode("utf-8-sig"), parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent(
            f"The change's {description} is not JSON: {error}.",
            code="MALFORMED_CHANGE",
            remedy="Set the connector's converters to JSON.",
        ) from error


def _check_object(value: Any, description: str) -> Json:
    if not isinstance(value, Mapping):
        raise MalformedEvent(
            f"The change's {description} is not a JSON object.", code="MALFORMED_CHANGE"
        )
    return value


def _split_payload(value: Json) -> tuple[Json, Json | None]:
    """Return the payload, and its schema if the converter writes one."""
    if set(value) == {"schema", "payload"}:
        schema = value["schema"]
        return _check_object(value["payload"], "payload"), schema if isinstance(
            schema, Mapping
        ) else None
    return value, None


def _get_snapshot_marker(source: Json) -> str:
    return str(source.get("snapshot", "false")).lower()


def _compute_sequence(source: Json) -> int:
    """Return the position of the change in its database's log as one increasing number."""
    for fields, extract in _SEQUENCE_EXTRACTORS:
        if all(source.get(field) is not None for field in fields):
            try:
                number = extract(source)
            except (TypeError, ValueError):
                break
            if 0 <= number < 2**63:
                return number
    raise MalformedEvent(
        f"The change of connector {source.get('connector')!r} has no position to order it by.",
        code="NO_POSITION",
        remedy=(
            "Use a connector with positions: PostgreSQL, MySQL, MariaDB, SQL Server, Oracle, Db2 "
            "or Informix."
        ),
    )


def _compute_binlog_sequence(source: Json) -> int:
    """Combine file number, offset in the file and row of the event (MySQL and MariaDB)."""
    # Cassandra's files belong to single nodes and end in no number: int() raises.
    file = int(str(source["file"]).rpartition(".")[2])
    # 17 bits for the file, 32 for the position and 14 for the row fit into a bigint.
    return file << 46 | int(source["pos"]) << 14 | min(int(source.get("row") or 0), 2**14 - 1)


def _compute_lsn_sequence(source: Json) -> int:
    """Combine log file, block and slot (SQL Server and Db2, hexadecimal) or parse one number
    (Informix).
    """
    parts = str(source.get("change_lsn") or source["commit_lsn"]).split(":")
    if len(parts) == 1:
        return int(parts[0])
    file, block, slot = (int(part, 16) for part in parts)
    return file << 40 | block << 12 | min(slot, 2**12 - 1)


_SEQUENCE_EXTRACTORS: Final[tuple[tuple[tuple[str, ...], Callable[[Json], int]], ...]] = (
    (("lsn",), lambda source: int(source["lsn"])),
    (("file", "pos"), _compute_binlog_sequence),
    (("scn",), lambda source: int(source["scn"])),
    (("commit_lsn",), _compute_lsn_sequence),
    (("change_lsn",), _compute_lsn_sequence),
)
