"""Times and places of a list as anybody may give them: understood, or refused with the reason."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from anabranch.cli.watch_log import beginning, end
from api.replays import Offsets, ReplayRequest
from evaluation.comparing import ComparisonRequest
from schemas.errors import ConfigurationError, InvalidRequest
from schemas.moments import in_utc
from sql.cursor import cursor, read_count_cursor, read_cursor

ID = UUID("11111111-1111-8111-8111-111111111111")
OUTSIDE = ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"]


def test_a_moment_is_in_utc_whatever_zone_it_was_given_in() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert in_utc(datetime.fromisoformat("2026-03-01T14:00+02:00")) == in_utc(datetime(2026, 3, 1, 12)) == noon
    assert in_utc(datetime.fromisoformat("2026-03-01T14:00+02:00")).tzinfo is UTC


@pytest.mark.parametrize("moment", OUTSIDE)
@pytest.mark.parametrize("field", ["since", "until"])
@pytest.mark.parametrize(("request_", "more"), [(ComparisonRequest, {}), (ReplayRequest, {"stage": "chunk"})])
def test_a_moment_that_utc_has_no_date_for_is_refused(request_: Any, more: dict[str, str], field: str, moment: str) -> None:
    with pytest.raises(ValidationError, match="before year 1 or after year 9999"):
        request_.model_validate({field: moment, **more})


@pytest.mark.parametrize("text", [*OUTSIDE, "-99999999999d"])
def test_what_the_calendar_does_not_reach_is_no_time_to_watch_from_or_until(text: str) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    for asked in (beginning, end):
        with pytest.raises(ConfigurationError, match="year 9999"):
            asked(text, now)


def test_a_place_in_a_list_is_read_as_it_was_written() -> None:
    moment = datetime(2026, 3, 1, 12, 0, 0, 7, tzinfo=UTC)
    assert read_cursor(cursor(moment, ID)) == (moment, ID)
    assert read_count_cursor(f"7_{ID}") == (7, ID)


@pytest.mark.parametrize("text", ["x", *(f"{moment}_{ID}" for moment in OUTSIDE), f"2026-03-01_{ID}x"])
def test_a_place_that_no_list_has_told_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="no cursor"):
        read_cursor(text)


@pytest.mark.parametrize("text", ["7", f"-1_{ID}", f"99999999999999999999_{ID}", f"1e3_{ID}"])
def test_a_count_that_no_list_has_told_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="no cursor"):
        read_count_cursor(text)


@pytest.mark.parametrize("place", [{"start": 2**63}, {"end": 2**63}, {"start": -1}])
def test_an_offset_that_no_log_has_is_refused(place: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Offsets(partition=0, **place)
