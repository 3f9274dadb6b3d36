from __future__ import annotations

from typing import Any

import pytest

from anabranch.cli.topics import _omit_idle


def make_line(stage: str, generation: str, group: str, lag: int | None) -> dict[str, Any]:
    return {
        "stage": stage,
        "generation": generation,
        "group": group,
        "topic": "ocr_done",
        "lag": lag,
    }


@pytest.mark.parametrize(
    ("lags", "shown"),
    [((0, 0), ["g1"]), ((0, 5), ["g2"]), ((5, 0), ["g1"]), ((3, 5), ["g1", "g2"])],
)
def test_stage_served_by_two_groups_has_one_line_unless_both_lag(
    lags: tuple[int, int], shown: list[str]
) -> None:
    lines = [
        make_line("chunk", "g2", "g1", lags[0]),
        make_line("chunk", "g2", "g2", lags[1]),
        make_line("embed", "g2", "embed.g2", 0),
    ]
    assert [line["group"] for line in _omit_idle(lines)] == [*shown, "embed.g2"]


def test_unknown_lags_and_other_generations_are_kept() -> None:
    lines = [make_line("chunk", "g1", "a", None), make_line("chunk", "g2", "b", 0)]
    assert _omit_idle(lines) == lines
