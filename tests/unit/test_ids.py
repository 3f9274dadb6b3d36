"""Timestamps and cursors from users are parsed or refused with the reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from anabranch.cli.watch import parse_end, parse_start
from evaluation.comparison import ComparisonRequest
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.ids import content_id, fingerprint
from schemas.models import Described, Request, get_description
from schemas.replay_requests import OffsetRange, ReplayRequest
from schemas.timestamps import to_utc
from sql.page_cursor import format_cursor, parse_count_cursor, parse_cursor

ITEM_ID = UUID("11111111-1111-8111-8111-111111111111")
OUT_OF_RANGE_TIMES = ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"]


def test_timestamps_are_normalized_to_utc() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert (
        to_utc(datetime.fromisoformat("2026-03-01T14:00+02:00"))
        == to_utc(datetime(2026, 3, 1, 12))
        == noon
    )
    assert to_utc(datetime.fromisoformat("2026-03-01T14:00+02:00")).tzinfo is UTC


@pytest.mark.parametrize("moment", OUT_OF_RANGE_TIMES)
@pytest.mark.parametrize("field", ["since", "until"])
@pytest.mark.parametrize(
    ("request_", "more"), [(ComparisonRequest, {}), (ReplayRequest, {"stage": "chunk"})]
)
def test_timestamp_outside_utc_range_is_rejected(
    request_: Any, more: dict[str, str], field: str, moment: str
) -> None:
    with pytest.raises(ValidationError, match="before year 1 or after year 9999"):
        request_.model_validate({field: moment, **more})


@pytest.mark.parametrize("text", [*OUT_OF_RANGE_TIMES, "-99999999999d"])
def test_watch_bounds_outside_calendar_are_rejected(text: str) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    for parse in (parse_start, parse_end):
        with pytest.raises(ConfigurationError, match="year 9999"):
            parse(text, now)


def test_cursor_round_trips() -> None:
    moment = datetime(2026, 3, 1, 12, 0, 0, 7, tzinfo=UTC)
    assert parse_cursor(format_cursor(moment, ITEM_ID)) == (moment, ITEM_ID)
    assert parse_count_cursor(f"7_{ITEM_ID}") == (7, ITEM_ID)


@pytest.mark.parametrize(
    "text",
    ["x", *(f"{moment}_{ITEM_ID}" for moment in OUT_OF_RANGE_TIMES), f"2026-03-01_{ITEM_ID}x"],
)
def test_invalid_cursor_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Invalid cursor"):
        parse_cursor(text)


@pytest.mark.parametrize(
    "text", ["7", f"-1_{ITEM_ID}", f"99999999999999999999_{ITEM_ID}", f"1e3_{ITEM_ID}"]
)
def test_invalid_count_cursor_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Invalid cursor"):
        parse_count_cursor(text)


@pytest.mark.parametrize("place", [{"start": 2**63}, {"end": 2**63}, {"start": -1}])
def test_out_of_range_offset_is_rejected(place: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        OffsetRange(partition=0, **place)


id_parts = st.recursive(
    st.none() | st.text() | st.binary() | st.integers() | st.uuids(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(one=st.lists(id_parts, max_size=4), two=st.lists(id_parts, max_size=4))
def test_different_parts_give_different_ids(one: list[object], two: list[object]) -> None:
    assert (content_id("kind", *one) == content_id("kind", *two)) == (one == two)  # type: ignore[arg-type]


def test_adjacent_parts_are_not_concatenated() -> None:
    assert content_id("kind", "ab", "c") != content_id("kind", "a", "bc")
    assert content_id("kind", "1") != content_id("kind", 1)


def test_content_id_is_a_stable_uuid_v8() -> None:
    found = content_id("document", "default", "", "contract-17")
    assert found == UUID("22c8050f-a3c7-8317-bc3a-f0c35dd37af8")
    assert found.version == 8
    assert found.variant == "specified in RFC 4122"


@pytest.mark.parametrize("part", [True, 1.5, {"a": 1}])
def test_unsupported_part_type_is_rejected(part: object) -> None:
    with pytest.raises(TypeError):
        content_id("kind", part)  # type: ignore[arg-type]


def test_fingerprint_ignores_key_order() -> None:
    assert (
        fingerprint({"a": 1, "b": 2})
        == fingerprint({"b": 2, "a": 1})
        != fingerprint({"a": 2, "b": 1})
    )


# Descriptions of fields in JSON Schemas.


class Engine(Described):
    name: str = Field(description="In one line.")
    power: float = Field(1.0, gt=0)
    """Above the line that it
    describes.
    """
    plain: int = 0


class Turbine(Engine, Request):
    power: float = 2.0
    plain: int = 1
    """Declared again."""


def test_string_below_a_field_is_its_description_in_one_line() -> None:
    properties = Engine.model_json_schema()["properties"]
    assert properties["power"]["description"] == "Above the line that it describes."
    assert properties["power"]["exclusiveMinimum"] == 0
    assert properties["name"]["description"] == "In one line."
    assert "description" not in properties["plain"]


def test_last_declaration_of_a_field_describes_it() -> None:
    schema = Turbine.model_json_schema()
    descriptions = {name: field.get("description") for name, field in schema["properties"].items()}
    assert descriptions == {"name": "In one line.", "power": None, "plain": "Declared again."}
    assert schema["additionalProperties"] is False
    assert [get_description(Turbine, name) for name in descriptions] == list(descriptions.values())
