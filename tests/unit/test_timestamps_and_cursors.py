"""Timestamps and cursors from users are parsed or refused with the reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from anabranch.cli.watch_log import parse_end, parse_start
from evaluation.comparison import ComparisonRequest
from schemas.errors import ConfigurationError, InvalidRequest
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
