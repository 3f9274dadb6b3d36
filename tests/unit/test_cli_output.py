from __future__ import annotations

import io
import json
from typing import Any

import pytest

from anabranch.cli.options import CommonOptions
from anabranch.cli.output import choose_display_name, format_cell, print_answer
from anabranch.cli.query import _format_location
from anabranch.process.terminal import EscapedStream


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        ([], "-"),
        ({}, "-"),
        (False, "no"),
        (0, "0"),
        (["a", "b"], "a, b"),
        ({"key": "a/b", "size": 3, "error": None, "tags": []}, "key a/b, size 3"),
        (
            {"low": 0.1, "done": True, "stages": ["chunk", "embed"]},
            "low 0.1, done yes, stages chunk, embed",
        ),
        ("two\nlines", "two lines"),
    ],
)
def test_table_cell_is_plain_text(value: object, expected: str) -> None:
    assert format_cell(value) == expected


def make_result(**more: Any) -> dict[str, Any]:
    return {
        "document_id": "7d4f",
        "external_id": None,
        "source_uri": None,
        "title": "Lease",
        "section": None,
        "pages": [],
    } | more


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (make_result(section="Lease"), "Lease"),
        (make_result(section="Lease > 2. Rent", pages=[1, 2]), "Lease · 2. Rent · p. 1, 2"),
        (make_result(section="Leases > 2. Rent"), "Lease · Leases > 2. Rent"),
        (make_result(title=None, source_uri="file:///tmp/lease.pdf"), "lease.pdf"),
        (make_result(title=None), "7d4f"),
    ],
)
def test_citation_location_names_document_once(item: dict[str, Any], expected: str) -> None:
    assert _format_location(item) == expected


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ({"items": [{"a": 1}, {"a": 2}], "next": "7"}, [{"a": 1}, {"a": 2}]),
        ({"topics": []}, []),
        ({"profiles": ["plain"]}, [{"profiles": ["plain"]}]),
        ({"documents": [{"a": 1}], "counts": {}}, [{"documents": [{"a": 1}], "counts": {}}]),
        ({"replay_id": "r", "next": None}, [{"replay_id": "r", "next": None}]),
    ],
)
def test_ndjson_prints_list_items_or_whole_body(
    body: dict[str, Any], lines: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    CommonOptions(output="ndjson").print_result(body)
    captured = capsys.readouterr()
    assert [json.loads(line) for line in captured.out.splitlines()] == [
        {"schema_version": 1, **line} for line in lines
    ]
    assert ("--after 7" in captured.err) == bool(body.get("next"))


def test_json_output_is_one_object_by_either_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for common in (CommonOptions(as_json=True), CommonOptions(output="json")):
        assert common.is_json
        common.print_result({"items": [1], "next": None})
        assert json.loads(capsys.readouterr().out) == {
            "schema_version": 1,
            "items": [1],
            "next": None,
        }
    assert not CommonOptions().is_json and CommonOptions(output="ndjson").is_json


def test_progress_is_ndjson_object_or_stderr_text(capsys: pytest.CaptureFixture[str]) -> None:
    for common in (
        CommonOptions(output="ndjson"),
        CommonOptions(as_json=True),
        CommonOptions(quiet=True),
    ):
        common.report_progress("7 of 20", {"read": 7})
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        '{"schema_version": 1, "progress": {"read": 7}}\n',
        "7 of 20\n",
    )


def test_document_label_falls_back_to_other_names() -> None:
    names = {"title": None, "filename": "", "source_uri": "http://here/x", "external_id": "x"}
    assert (
        choose_display_name(names),
        choose_display_name(names | {"title": "Of herons"}),
        choose_display_name({"external_id": "x"}),
        choose_display_name({}),
    ) == ("http://here/x", "Of herons", "x", None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


DOCUMENT_ID = "7d4f1c9e-0b1c-8f6e-9a51-2f0c6f7f2f11"
ITEM: dict[str, Any] = {
    "document_id": DOCUMENT_ID,
    "fact_id": DOCUMENT_ID,
    "at": "2026-11-28T15:40:55.123456Z",
    "n": 7,
    "title": "A lease of the mill and of the weir, renewed by both parties " * 2,
}


def print_list(monkeypatch: pytest.MonkeyPatch, columns: int, **options: Any) -> list[str]:
    """Print the item as a list command does on a terminal of that width."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    names = options.pop("names", ("document_id", "at", "n", "title"))
    CommonOptions(**options).show_page({"items": [ITEM], "next": None}, *names, optional=("n",))
    return terminal.getvalue().splitlines()


def test_list_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    heading, line = print_list(monkeypatch, 60)
    assert heading.split() == ["document_id", "at", "title"]
    assert line.startswith("7d4f1c9e     2026-11-28 15:40  A lease") and line.endswith("…")
    assert len(line) == 60


def test_id_that_has_no_short_form_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    _, line = print_list(monkeypatch, 60, names=("fact_id", "title"))
    assert line.startswith(DOCUMENT_ID) and len(line) == 60


def test_wide_list_and_piped_list_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    CommonOptions().show_page({"items": [ITEM], "next": None}, *ITEM)
    piped = capsys.readouterr().out.splitlines()
    assert print_list(monkeypatch, 60, wide=True, names=tuple(ITEM)) == piped
    assert ITEM["title"].strip() in piped[1] and ITEM["at"] in piped[1]


def test_narrow_list_is_not_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    _, line = print_list(monkeypatch, 60, names=("document_id", "n"))
    assert line.split() == [DOCUMENT_ID, "7"]


@pytest.mark.parametrize(
    ("is_terminal", "no_color", "expected"),
    [
        (True, False, "pay \x1b[1m45\x1b[22m of 2 * 3, \\x1b[2J\n"),
        (True, True, "pay 45 of 2 * 3, \\x1b[2J\n"),
        (False, False, "pay 45 of 2 * 3, \\x1b[2J\n"),
    ],
)
def test_emphasis_is_bold_on_terminal_only(
    is_terminal: bool, no_color: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr("sys.stdout", EscapedStream(stream))
    monkeypatch.setenv("TERM", "xterm")
    print_answer("pay **45** of 2 * 3, \x1b[2J", no_color=no_color)
    assert stream.getvalue() == expected
