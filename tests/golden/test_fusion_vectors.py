"""The fusion vectors that the browser's fusion is tested with, against the real fusion.

`python -m tests.support.fusion_vectors` writes them again.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fusion_vectors import VECTORS_PATH, compute_expected, make_cases


@pytest.fixture(scope="module")
def vectors() -> list[dict[str, Any]]:
    return list(json.loads(VECTORS_PATH.read_text(encoding="utf-8")))


def drop_expected(case: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in case.items() if name != "expected"}


def test_vectors_are_up_to_date(vectors: list[dict[str, Any]]) -> None:
    assert [drop_expected(case) for case in vectors] == [drop_expected(c) for c in make_cases()]


def test_recorded_results_are_those_of_fusion(vectors: list[dict[str, Any]]) -> None:
    for case in vectors:
        computed, expected = compute_expected(case), case["expected"]
        assert computed["method"] == expected["method"]
        for name in ("chunks", "passages"):
            assert [row[0] for row in computed[name]] == [row[0] for row in expected[name]]
            # Python 3.12 rounds sums less than 3.11: in the last digit.
            assert [row[1] for row in computed[name]] == pytest.approx(
                [row[1] for row in expected[name]], rel=1e-12, abs=1e-12
            )


def test_vectors_cover_every_branch(vectors: list[dict[str, Any]]) -> None:
    methods = {(case["fusion"]["method"], case["expected"]["method"]) for case in vectors}
    assert methods == {("zscore", "zscore"), ("zscore", "rrf"), ("rrf", "rrf")}
    assert {case["role"] for case in vectors} == {"added", "replaces", None}
    assert any(len(case["expected"]["chunks"]) > 128 for case in vectors)
    scores = [[score for _, score in case["expected"]["chunks"]] for case in vectors]
    assert any(len(set(values)) < len(values) for values in scores)
