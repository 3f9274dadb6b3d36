"""Debezium's events, read."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from schemas.errors import MalformedEvent
from schemas.records import Record
from schemas.sources import Change, ColumnEncoding, RowMapping
from streams.sources.columns import PLACEHOLDER, readable, unavailable
from streams.sources.envelope import SnapshotEnd, Truncation, row_key, sayings
from streams.sources.saying import draft

MAPPING = RowMapping(body=["body"], title="title")
SOURCE = {"connector": "postgresql", "schema": "public", "table": "notes", "lsn": 42, "snapshot": "false"}


def event(op: str, after: Any = None, *, key: Any = None, source: Any = None, headers: Any = None, **more: Any) -> Record:
    value = {"before": None, "after": after, "op": op, "source": {**SOURCE, **(source or {})}, **more}
    return Record("shop", json.dumps(key or {"id": 1}).encode(), json.dumps(value).encode(), headers or {})


def one(record: Record, mapping: RowMapping = MAPPING) -> Any:
    [said] = sayings(record, 1, mapping)
    return said


def test_a_created_row_is_its_mapped_columns() -> None:
    said = one(event("c", {"id": 1, "title": "T", "body": "B", "more": "left out"}))
    assert said == Change("1", "public.notes", 1, 42, columns={"title": "T", "body": "B", "id": 1})


def test_the_same_event_with_a_schema_says_the_same() -> None:
    plain = event("c", {"id": 1, "title": "T", "body": "B"})
    wrapped = Record(
        "shop",
        json.dumps({"schema": None, "payload": {"id": 1}}).encode(),
        json.dumps({"schema": {"fields": []}, "payload": json.loads(plain.value or b"")}).encode(),
    )
    assert one(wrapped) == one(plain)


def test_a_placeholder_is_unknown_and_never_text() -> None:
    said = one(event("u", {"id": 1, "title": "T", "body": PLACEHOLDER}))
    assert (said.unknown, said.columns) == (("body",), {"title": "T", "id": 1})


def test_nulls_of_before_are_not_read() -> None:
    deleted = event("d", before={"id": 1, "title": None, "body": None})
    assert one(deleted) == Change("1", "public.notes", 1, 42, gone=True)


def test_a_row_that_got_its_key_names_the_old_one() -> None:
    header = {"__debezium.oldkey": json.dumps({"schema": {}, "payload": {"id": 9}}).encode()}
    assert one(event("c", {"id": 1, "title": "", "body": PLACEHOLDER}, headers=header)).old_key == "9"


@pytest.mark.parametrize("value", [None])
def test_a_tombstone_says_nothing(value: None) -> None:
    assert sayings(Record("shop", b'{"id": 1}', value), 1, MAPPING) == []


def test_a_truncation_needs_no_key() -> None:
    value = {"op": "t", "before": None, "after": None, "source": SOURCE}
    assert one(Record("shop", None, json.dumps(value).encode())) == Truncation("public.notes", 1, 42)


@pytest.mark.parametrize(("snapshot", "read", "ends"), [("true", True, False), (True, True, False), ("last", True, True), ("incremental", False, False)])
def test_only_a_full_snapshot_reads_and_its_last_row_ends_it(snapshot: Any, read: bool, ends: bool) -> None:
    said = sayings(event("r", {"id": 1, "title": "", "body": ""}, source={"snapshot": snapshot}), 1, MAPPING)
    assert (said[0].read, said[1:]) == (read, [SnapshotEnd("public.notes", 1, 42)] if ends else [])


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ({"lsn": None, "connector": "mysql", "file": "mysql-bin.000003", "pos": 484, "row": 2}, 3 << 46 | 484 << 14 | 2),
        ({"lsn": None, "connector": "mariadb", "file": "bin.000004", "pos": 4, "row": 0}, 4 << 46 | 4 << 14),
        ({"lsn": None, "connector": "sqlserver", "change_lsn": "00000027:00000758:0003", "commit_lsn": "00000027:00000758:0005"}, 0x27 << 40 | 0x758 << 12 | 3),
        ({"lsn": None, "connector": "oracle", "scn": "2122185"}, 2122185),
        ({"lsn": None, "connector": "informix", "change_lsn": "627404540485812", "commit_lsn": "627404540760620"}, 627404540485812),
    ],
)
def test_other_databases_number_their_changes_too(source: dict[str, Any], number: int) -> None:
    assert one(event("c", {"id": 1, "title": "", "body": ""}, source=source)).sequence == number


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (Record("shop", b"{}", b"no json"), "MALFORMED_CHANGE"),
        (Record("shop", b"{}", b'{"id": 1, "body": "flattened"}'), "MALFORMED_CHANGE"),
        (Record("shop", None, event("c", {"id": 1, "title": "", "body": ""}).value), "MALFORMED_CHANGE"),
        (event("c", {"id": 1, "title": ""}), "NO_SUCH_COLUMN"),
        (event("c", {"id": 1, "title": "", "body": ""}, source={"lsn": None, "connector": "vitess", "vgtid": "[]"}), "NO_POSITION"),
        (event("c", {"id": 1, "title": "", "body": ""}, source={"lsn": None, "file": "commitlog-6-1.log", "pos": 54}), "NO_POSITION"),
        (event("c", {"id": "x" * 2000, "title": "", "body": ""}, key={"id": "x" * 2000}), "MALFORMED_CHANGE"),
    ],
)
def test_what_cannot_be_ordered_or_mapped_is_refused(record: Record, code: str) -> None:
    with pytest.raises(MalformedEvent) as refused:
        sayings(record, 1, MAPPING)
    assert refused.value.code == code


def test_keys_of_several_columns_do_not_run_together() -> None:
    assert row_key({"a": "x/y", "b": "z"}) != row_key({"a": "x", "b": "y/z"})
    assert row_key({"a": "x/y"}) == "x/y"


@pytest.mark.parametrize(
    "value",
    [PLACEHOLDER, base64.b64encode(PLACEHOLDER.encode()).decode(), [PLACEHOLDER], list(PLACEHOLDER.encode()), {PLACEHOLDER: PLACEHOLDER}],
)
def test_a_placeholder_is_known_in_every_type(value: Any) -> None:
    assert unavailable(value)


@pytest.mark.parametrize("value", ["", "text", [], [1, 2], {"a": 1, "b": 2}, None, 0, {}])
def test_a_value_is_no_placeholder(value: Any) -> None:
    assert not unavailable(value)


@pytest.mark.parametrize(
    ("name", "parameters", "value", "expected"),
    [
        ("io.debezium.time.Date", {}, 20514, "2026-03-02"),
        ("io.debezium.time.MicroTimestamp", {}, 1772366400000001, "2026-03-01T12:00:00.000001"),
        ("io.debezium.time.NanoTimestamp", {}, 1772366400000000000, "2026-03-01T12:00:00"),
        ("io.debezium.time.Timestamp", {}, -1, "1969-12-31T23:59:59.999000"),
        ("io.debezium.time.MicroTime", {}, 3_600_000_000, "01:00:00"),
        ("org.apache.kafka.connect.data.Decimal", {"scale": "2"}, base64.b64encode((-1250).to_bytes(2, "big", signed=True)).decode(), "-12.50"),
        ("io.debezium.data.VariableScaleDecimal", {}, {"scale": 1, "value": base64.b64encode(b"\x7b").decode()}, "12.3"),
        ("io.debezium.data.Json", {}, '{"a": [1]}', {"a": [1]}),
        ("io.debezium.time.ZonedTimestamp", {}, "2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z"),
        ("io.debezium.data.Uuid", {}, "0b9c", "0b9c"),
    ],
)
def test_typed_values_become_what_a_person_reads(name: str, parameters: dict[str, str], value: Any, expected: Any) -> None:
    assert readable(value, {"name": name, "parameters": parameters}, None) == expected


def test_without_a_schema_the_declared_encoding_counts() -> None:
    assert readable(20514, None, ColumnEncoding(type="date")) == "2026-03-02"
    assert readable("BOI=", None, ColumnEncoding(type="decimal", scale=2)) == "12.50"
    with pytest.raises(MalformedEvent):
        readable("soon", None, ColumnEncoding(type="date"))


def test_several_columns_make_one_body_and_bytes_make_a_file() -> None:
    mapping = RowMapping(body=["summary", "body"], id=["slug"], metadata=["price", "none"])
    columns = {"slug": "n-1", "summary": "S", "body": None, "price": 3, "none": None}
    made = draft("1", columns, mapping)
    assert (made.external_id, made.text, made.metadata) == ("n-1", "S", {"price": 3})
    file = draft("1", {"body": {"base64": "QQ=="}, "name": "a.pdf"}, RowMapping(body=["body"], filename="name"))
    assert (file.text, file.base64, file.filename) == (None, "QQ==", "a.pdf")


def test_a_row_whose_metadata_no_event_takes_is_refused_alone() -> None:
    mapping = RowMapping(body=["body"], metadata=["facts"])
    with pytest.raises(MalformedEvent, match="600,012 bytes"):
        draft("1", {"body": "B", "facts": "x" * 600_000}, mapping)
    assert draft("1", {"body": "B" * 600_000, "facts": "x"}, mapping).text == "B" * 600_000


def test_half_of_a_surrogate_pair_and_numbers_that_json_has_not_can_be_written_down() -> None:
    record = Record("shop", b'{"id": 1}', (event("c", {"id": 1, "title": "T", "body": "B"}).value or b"").replace(b'"B"', b'"\\ud800"').replace(b'"T"', b"NaN"))
    said = one(record)
    assert (said.columns["body"], said.columns["title"]) == ("?", "NaN")
