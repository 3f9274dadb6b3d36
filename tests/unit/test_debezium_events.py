"""Parsing of Debezium change events."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from schemas.errors import MalformedEvent
from schemas.sources import ColumnEncoding, RowChange, RowMapping
from schemas.topics import Record
from streams.sources.column_values import PLACEHOLDER, is_unavailable, to_json_value
from streams.sources.debezium import SnapshotEnd, Truncation, format_row_key, parse_change_events
from streams.sources.emitter import build_document
from streams.sources.pgoutput import TableShape, parse_value

ROW = {"id": 1, "title": "T", "body": "B"}
EMPTY_ROW = {"id": 1, "title": "", "body": ""}
MAPPING = RowMapping(body=["body"], title="title")
SOURCE_FIELDS = {
    "connector": "postgresql",
    "schema": "public",
    "table": "notes",
    "lsn": 42,
    "snapshot": "false",
}


def make_debezium_record(
    op: str,
    after: Any = None,
    *,
    key: Any = None,
    source: Any = None,
    headers: Any = None,
    **more: Any,
) -> Record:
    source_fields = SOURCE_FIELDS | (source or {})
    value = {"before": None, "after": after, "op": op, "source": source_fields, **more}
    return Record(
        "shop", json.dumps(key or {"id": 1}).encode(), json.dumps(value).encode(), headers or {}
    )


def parse_single_change(record: Record, mapping: RowMapping = MAPPING) -> Any:
    [change] = parse_change_events(record, 1, mapping)
    return change


def test_create_event_has_mapped_columns() -> None:
    change = parse_single_change(
        make_debezium_record("c", {"id": 1, "title": "T", "body": "B", "more": "left out"})
    )
    assert change == RowChange(
        "1", "public.notes", 1, 42, columns={"title": "T", "body": "B", "id": 1}
    )


def test_event_with_embedded_schema_parses_the_same() -> None:
    plain = make_debezium_record("c", ROW)
    wrapped = Record(
        "shop",
        json.dumps({"schema": None, "payload": {"id": 1}}).encode(),
        json.dumps({"schema": {"fields": []}, "payload": json.loads(plain.value or b"")}).encode(),
    )
    assert parse_single_change(wrapped) == parse_single_change(plain)


def test_unavailable_value_placeholder_is_an_unknown_column() -> None:
    change = parse_single_change(
        make_debezium_record("u", {"id": 1, "title": "T", "body": PLACEHOLDER})
    )
    assert (change.unchanged_columns, change.columns) == (("body",), {"title": "T", "id": 1})


def test_delete_event_ignores_null_before_image() -> None:
    deleted = make_debezium_record("d", before={"id": 1, "title": None, "body": None})
    assert parse_single_change(deleted) == RowChange("1", "public.notes", 1, 42, is_deleted=True)


def test_key_change_names_the_old_key() -> None:
    header = {"__debezium.oldkey": json.dumps({"schema": {}, "payload": {"id": 9}}).encode()}
    assert (
        parse_single_change(
            make_debezium_record("c", {"id": 1, "title": "", "body": PLACEHOLDER}, headers=header)
        ).old_key
        == "9"
    )


def test_tombstone_yields_no_change() -> None:
    assert parse_change_events(Record("shop", b'{"id": 1}', None), 1, MAPPING) == []


def test_truncate_event_needs_no_key() -> None:
    value = {"op": "t", "before": None, "after": None, "source": SOURCE_FIELDS}
    assert parse_single_change(Record("shop", None, json.dumps(value).encode())) == Truncation(
        "public.notes", 1, 42
    )


@pytest.mark.parametrize(
    ("snapshot", "read", "ends"),
    [
        ("true", True, False),
        (True, True, False),
        ("last", True, True),
        ("incremental", False, False),
    ],
)
def test_only_full_snapshot_reads_count_and_last_row_ends_it(
    snapshot: Any, read: bool, ends: bool
) -> None:
    changes = parse_change_events(
        make_debezium_record("r", EMPTY_ROW, source={"snapshot": snapshot}),
        1,
        MAPPING,
    )
    assert (changes[0].is_snapshot_read, changes[1:]) == (
        read,
        [SnapshotEnd("public.notes", 1, 42)] if ends else [],
    )


@pytest.mark.parametrize(
    ("source", "number"),
    [
        (
            {"lsn": None, "connector": "mysql", "file": "mysql-bin.000003", "pos": 484, "row": 2},
            3 << 46 | 484 << 14 | 2,
        ),
        (
            {"lsn": None, "connector": "mariadb", "file": "bin.000004", "pos": 4, "row": 0},
            4 << 46 | 4 << 14,
        ),
        (
            {
                "lsn": None,
                "connector": "sqlserver",
                "change_lsn": "00000027:00000758:0003",
                "commit_lsn": "00000027:00000758:0005",
            },
            0x27 << 40 | 0x758 << 12 | 3,
        ),
        ({"lsn": None, "connector": "oracle", "scn": "2122185"}, 2122185),
        (
            {
                "lsn": None,
                "connector": "informix",
                "change_lsn": "627404540485812",
                "commit_lsn": "627404540760620",
            },
            627404540485812,
        ),
    ],
)
def test_sequence_is_derived_for_each_connector(source: dict[str, Any], number: int) -> None:
    assert (
        parse_single_change(make_debezium_record("c", EMPTY_ROW, source=source)).sequence == number
    )


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (Record("shop", b"{}", b"no json"), "MALFORMED_CHANGE"),
        (Record("shop", b"{}", b'{"id": 1, "body": "flattened"}'), "MALFORMED_CHANGE"),
        (Record("shop", None, make_debezium_record("c", EMPTY_ROW).value), "MALFORMED_CHANGE"),
        (make_debezium_record("c", {"id": 1, "title": ""}), "NO_SUCH_COLUMN"),
        (
            make_debezium_record(
                "c", EMPTY_ROW, source={"lsn": None, "connector": "vitess", "vgtid": "[]"}
            ),
            "NO_POSITION",
        ),
        (
            make_debezium_record(
                "c", EMPTY_ROW, source={"lsn": None, "file": "commitlog-6-1.log", "pos": 54}
            ),
            "NO_POSITION",
        ),
        (
            make_debezium_record(
                "c", {"id": "x" * 2000, "title": "", "body": ""}, key={"id": "x" * 2000}
            ),
            "MALFORMED_CHANGE",
        ),
    ],
)
def test_unordered_or_unmappable_event_is_rejected(record: Record, code: str) -> None:
    with pytest.raises(MalformedEvent) as refused:
        parse_change_events(record, 1, MAPPING)
    assert refused.value.code == code


def test_composite_key_columns_do_not_collide() -> None:
    assert format_row_key({"a": "x/y", "b": "z"}) != format_row_key({"a": "x", "b": "y/z"})
    assert format_row_key({"a": "x/y"}) == "x/y"


@pytest.mark.parametrize(
    "value",
    [
        PLACEHOLDER,
        base64.b64encode(PLACEHOLDER.encode()).decode(),
        [PLACEHOLDER],
        list(PLACEHOLDER.encode()),
        {PLACEHOLDER: PLACEHOLDER},
    ],
)
def test_placeholder_is_detected_in_every_type(value: Any) -> None:
    assert is_unavailable(value)


@pytest.mark.parametrize("value", ["", "text", [], [1, 2], {"a": 1, "b": 2}, None, 0, {}])
def test_ordinary_value_is_not_a_placeholder(value: Any) -> None:
    assert not is_unavailable(value)


@pytest.mark.parametrize(
    ("name", "parameters", "value", "expected"),
    [
        ("io.debezium.time.Date", {}, 20514, "2026-03-02"),
        ("io.debezium.time.MicroTimestamp", {}, 1772366400000001, "2026-03-01T12:00:00.000001"),
        ("io.debezium.time.Timestamp", {}, -1, "1969-12-31T23:59:59.999"),
        ("io.debezium.time.MicroTime", {}, 3_600_000_000, "01:00:00"),
        (
            "org.apache.kafka.connect.data.Decimal",
            {"scale": "2"},
            base64.b64encode((-1250).to_bytes(2, "big", signed=True)).decode(),
            "-12.50",
        ),
        (
            "io.debezium.data.VariableScaleDecimal",
            {},
            {"scale": 1, "value": base64.b64encode(b"\x7b").decode()},
            "12.3",
        ),
        ("io.debezium.data.Json", {}, '{"a": [1]}', {"a": [1]}),
        ("io.debezium.data.Uuid", {}, "0b9c", "0b9c"),
        ("io.debezium.time.MicroTimestamp", {}, 9223372036825200000, "infinity"),
        ("io.debezium.time.MicroTimestamp", {}, -9223372036832400000, "-infinity"),
        ("io.debezium.time.Date", {}, 2147483647, "infinity"),
        ("io.debezium.time.Date", {}, -2147483648, "-infinity"),
        ("io.debezium.time.Date", {}, 2145042905, "5874897-12-31"),
        ("io.debezium.time.Date", {}, -719163, "0001-12-31 BC"),
        (
            "io.debezium.time.MicroTimestamp",
            {},
            -62135596800000001,
            "0001-12-31T23:59:59.999999 BC",
        ),
        ("io.debezium.time.Timestamp", {}, 253402300800000, "10000-01-01T00:00:00"),
        ("io.debezium.time.NanoTimestamp", {}, 1_000_000_001, "1970-01-01T00:00:01.000000001"),
        ("io.debezium.time.MicroTime", {}, 86_400_000_000, "24:00:00"),
        ("io.debezium.time.MicroTime", {}, -3_020_399_000_000, "-838:59:59"),
        ("io.debezium.time.Time", {}, 36_000_500, "10:00:00.5"),
        ("io.debezium.time.MicroDuration", {}, 3155760000000000, "P36525D"),
        ("io.debezium.time.MicroDuration", {}, -90_061_500_000, "P-1DT-1H-1M-1.5S"),
        ("io.debezium.time.NanoDuration", {}, 0, "PT0S"),
        ("io.debezium.time.Interval", {}, "P1Y2M3DT4H0M0S", "P1Y2M3DT4H"),
        ("io.debezium.time.Interval", {}, "P0Y0M-1DT0H0M0.500S", "P-1DT0.5S"),
        ("io.debezium.data.Bits", {"length": "12"}, "qgU=", "010110101010"),
        ("io.debezium.data.Bits", {"length": "2147483647"}, "BQ==", "101"),
    ],
)
def test_typed_values_are_formatted_for_readers(
    name: str, parameters: dict[str, str], value: Any, expected: Any
) -> None:
    assert to_json_value(value, {"name": name, "parameters": parameters}, None) == expected


@pytest.mark.parametrize(
    ("items", "value", "expected"),
    [
        (
            {
                "type": "bytes",
                "name": "org.apache.kafka.connect.data.Decimal",
                "parameters": {"scale": "2"},
            },
            ["BOI=", None, "+w=="],
            ["12.50", None, "-0.05"],
        ),
        ({"type": "int32", "name": "io.debezium.time.Date"}, [20514, None], ["2026-03-02", None]),
        ({"type": "string", "name": "io.debezium.data.Json"}, ['{"a":1}'], [{"a": 1}]),
        ({"type": "bytes"}, ["QQ=="], [{"base64": "QQ=="}]),
        (
            {"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}},
            [[0], [1]],
            [["1970-01-01"], ["1970-01-02"]],
        ),
        (None, [1], [1]),
    ],
)
def test_elements_of_arrays_are_formatted_as_their_type(
    items: dict[str, Any] | None, value: Any, expected: Any
) -> None:
    assert to_json_value(value, {"type": "array", "items": items}, None) == expected


# Text of Postgres, type, and what the connector writes for the same value.
@pytest.mark.parametrize(
    ("text", "oid", "schema", "encoded"),
    [
        ("infinity", 1114, {"name": "io.debezium.time.MicroTimestamp"}, 9223372036825200000),
        ("12000-02-29", 1082, {"name": "io.debezium.time.Date"}, 3663441),
        ("0044-03-15 BC", 1082, {"name": "io.debezium.time.Date"}, -735160),
        (
            "0044-03-15 12:30:00.25 BC",
            1114,
            {"name": "io.debezium.time.MicroTimestamp"},
            -735160 * 86_400_000_000 + 45_000_250_000,
        ),
        (
            "2026-03-01 10:00:00.5+00",
            1184,
            {"name": "io.debezium.time.ZonedTimestamp"},
            "2026-03-01T10:00:00.5Z",
        ),
        ("24:00:00", 1083, {"name": "io.debezium.time.MicroTime"}, 86_400_000_000),
        ("P1Y2M3DT4H", 1186, {"name": "io.debezium.time.Interval"}, "P1Y2M3DT4H0M0S"),
        ("10101010", 1560, {"name": "io.debezium.data.Bits", "parameters": {"length": 8}}, "qg=="),
        (
            "{12.50,NULL}",
            1231,
            {
                "type": "array",
                "items": {
                    "name": "org.apache.kafka.connect.data.Decimal",
                    "parameters": {"scale": "2"},
                },
            },
            ["BOI=", None],
        ),
        (
            "{2026-03-02,infinity}",
            1182,
            {"type": "array", "items": {"name": "io.debezium.time.Date"}},
            [20514, 2147483647],
        ),
        (
            '{"2026-03-01 12:00:00"}',
            1115,
            {"type": "array", "items": {"name": "io.debezium.time.MicroTimestamp"}},
            [1772366400000000],
        ),
        ("{{1,2},{3,4}}", 1007, {"type": "array", "items": {"type": "array"}}, [[1, 2], [3, 4]]),
        ("[0:1]={1,2}", 1007, {"type": "array", "items": {"type": "int32"}}, [1, 2]),
        ("{}", 1009, {"type": "array", "items": {"type": "string"}}, []),
        (
            '{"a \\"b\\"","c,d","{e}","NULL",NULL,"f\\\\g"}',
            1009,
            {"type": "array", "items": {"type": "string"}},
            ['a "b"', "c,d", "{e}", "NULL", None, "f\\g"],
        ),
    ],
)
def test_both_readers_format_a_value_alike(
    text: str, oid: int, schema: dict[str, Any], encoded: Any
) -> None:
    assert parse_value(text, oid) == to_json_value(encoded, schema, None)


def test_arrays_of_json_and_bytes_carry_their_schema() -> None:
    shape = TableShape("public", "notes", {"id": 23, "title": 3807, "body": 1001}, ["id"])
    record = shape.build_record(
        "c", {"id": "1", "title": r'{"{\"a\": 1}"}', "body": r'{"\\x41"}'}, 42
    )
    change = parse_single_change(record)
    assert (change.columns["title"], change.columns["body"]) == ([{"a": 1}], [{"base64": "QQ=="}])


def test_byte_order_mark_before_change_is_accepted() -> None:
    plain = make_debezium_record("c", ROW)
    marked = Record(
        "shop", b"\xef\xbb\xbf" + (plain.key or b""), b"\xef\xbb\xbf" + (plain.value or b"")
    )
    assert parse_single_change(marked) == parse_single_change(plain)


def test_declared_encoding_applies_without_schema() -> None:
    assert to_json_value(20514, None, ColumnEncoding(type="date")) == "2026-03-02"
    assert to_json_value("BOI=", None, ColumnEncoding(type="decimal", scale=2)) == "12.50"
    with pytest.raises(MalformedEvent):
        to_json_value("soon", None, ColumnEncoding(type="date"))


def test_columns_join_into_body_and_bytes_become_a_file() -> None:
    mapping = RowMapping(body=["summary", "body"], id=["slug"], metadata=["price", "none"])
    columns = {"slug": "n-1", "summary": "S", "body": None, "price": 3, "none": None}
    made = build_document("1", columns, mapping)
    assert (made.external_id, made.text, made.metadata) == ("n-1", "S", {"price": 3})
    file = build_document(
        "1",
        {"body": {"base64": "QQ=="}, "name": "a.pdf"},
        RowMapping(body=["body"], filename="name"),
    )
    assert (file.text, file.base64, file.filename) == (None, "QQ==", "a.pdf")


def test_row_with_oversized_metadata_is_rejected() -> None:
    mapping = RowMapping(body=["body"], metadata=["facts"])
    with pytest.raises(MalformedEvent, match="600,012 bytes"):
        build_document("1", {"body": "B", "facts": "x" * 600_000}, mapping)
    assert build_document("1", {"body": "B" * 600_000, "facts": "x"}, mapping).text == "B" * 600_000


def test_lone_surrogate_and_nan_are_replaced() -> None:
    record = Record(
        "shop",
        b'{"id": 1}',
        (make_debezium_record("c", ROW).value or b"")
        .replace(b'"B"', b'"\\ud800"')
        .replace(b'"T"', b"NaN"),
    )
    change = parse_single_change(record)
    assert (change.columns["body"], change.columns["title"]) == ("?", "NaN")
