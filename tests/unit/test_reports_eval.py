from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaluation.reports_eval import (
    ParsedFile,
    ReportCase,
    build_reports_report,
    read_report_cases,
    score_case,
)
from schemas.errors import InvalidRequest
from tests.unit.query_responses import respond

PARSED = ParsedFile("Fee ~~90~~ 72 €, 10⁶ units", ("CHARSET_GUESSED: read as cp1252",))


def write_cases(folder: Path, *cases: dict[str, Any]) -> Path:
    (folder / "fee.md").write_text("The fee is 72 euros.", encoding="utf-8")
    lines = "".join(json.dumps({"file": "fee.md", "kind": "fee", **case}) + "\n" for case in cases)
    (folder / "cases.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("conditions", "is_right"),
    [
        ({"must": ["72 euros"], "must_not": ["90"]}, True),
        ({"must": ["7"]}, False),
        ({"must": ["72", "90"]}, False),
        ({"must_not": ["72"]}, False),
        ({"refused": False}, True),
        ({"refused": True}, False),
        ({"markdown_must": ["10⁶", "~~90~~"]}, True),
        ({"markdown_must": ["106"]}, False),
        ({"markdown_must_not": ["90 72"]}, True),
        ({"markdown_must_not": ["72 €"]}, False),
        ({"markdown_or_warning": ["no such text", "charset"]}, True),
        ({"markdown_or_warning": ["no such text"]}, False),
    ],
)
def test_every_condition_of_case_must_hold(conditions: dict[str, Any], is_right: bool) -> None:
    case = ReportCase(file="fee.md", kind="fee", question="What is the fee?", **conditions)
    result = score_case(case, PARSED, respond("The fee is **72 euros**. [1]"))
    assert result.is_right is is_right


def test_refusal_shows_no_value() -> None:
    case = ReportCase(file="fee.md", kind="fee", question="What is the fee?", must_not=["90"])
    refused = respond(None)
    assert score_case(case, PARSED, refused).faults == ("was refused",)
    expected = case.model_copy(update={"must_not": [], "refused": True})
    assert score_case(expected, PARSED, refused).is_right


def test_file_that_failed_is_not_right_by_lack_of_text() -> None:
    case = ReportCase(file="fee.md", kind="fee", markdown_must_not=["90"])
    failed = ParsedFile("", ("The file is encrypted.",), "ENCRYPTED")
    assert score_case(case, failed, None).faults == ("the file failed with ENCRYPTED",)


def test_report_counts_by_kind(tmp_path: Path) -> None:
    folder = write_cases(tmp_path, {"markdown_must": ["72"]}, {"markdown_must": ["73"]})
    report = build_reports_report(
        [score_case(case, PARSED, None) for case in read_report_cases(folder)]
    )
    assert report["kinds"] == {"fee": {"cases": 2, "right": 1}}
    assert [item["faults"] for item in report["wrong"]] == [["the Markdown lacks '73'"]]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"question": "What is the fee?"}, "without must"),
        ({"must": ["72"]}, "no question"),
        ({}, "no condition"),
        ({"file": "other.md", "markdown_must": ["72"]}, "other.md is no file"),
        ({"file": "../outside.md", "markdown_must": ["72"]}, "outside.md is no file"),
        ({"markdown_must": ["72"], "markdown_mst": []}, "markdown_mst"),
    ],
)
def test_invalid_case_is_named(tmp_path: Path, case: dict[str, Any], reason: str) -> None:
    (tmp_path / "outside.md").write_text("secret", encoding="utf-8")
    (folder := tmp_path / "set").mkdir()
    with pytest.raises(InvalidRequest, match=reason):
        read_report_cases(write_cases(folder, case))


def test_folder_without_cases_is_no_set(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot read"):
        read_report_cases(tmp_path)
