from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.cli.ask import _place
from anabranch.cli.options import Common
from anabranch.cli.output import called, cell


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "-"),
        ([], "-"),
        ({}, "-"),
        (False, "no"),
        (0, "0"),
        (["a", "b"], "a, b"),
        ({"key": "a/b", "size": 3, "error": None, "tags": []}, "key a/b, size 3"),
        ({"low": 0.1, "done": True, "stages": ["chunk", "embed"]}, "low 0.1, done yes, stages chunk, embed"),
        ("two\nlines", "two lines"),
    ],
)
def test_what_people_read_has_no_brackets_and_says_nothing_of_nothing(value: object, told: str) -> None:
    assert cell(value) == told


def result(**more: Any) -> dict[str, Any]:
    return {"document_id": "7d4f", "external_id": None, "source_uri": None, "title": "Lease", "section": None, "pages": []} | more


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (result(section="Lease"), "Lease"),
        (result(section="Lease > 2. Rent", pages=[1, 2]), "Lease · 2. Rent · p. 1, 2"),
        (result(section="Leases > 2. Rent"), "Lease · Leases > 2. Rent"),
        (result(title=None, source_uri="file:///tmp/lease.pdf"), "lease.pdf"),
        (result(title=None), "7d4f"),
    ],
)
def test_a_place_names_the_document_once(item: dict[str, Any], told: str) -> None:
    assert _place(item) == told


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
def test_lines_are_the_items_of_a_list_and_else_the_whole_in_one(body: dict[str, Any], lines: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    Common(output="ndjson").show(body)
    told = capsys.readouterr()
    assert [json.loads(line) for line in told.out.splitlines()] == [{"schema_version": 1, **line} for line in lines]
    assert ("--after 7" in told.err) == bool(body.get("next"))


def test_json_is_one_object_by_either_name_and_text_is_what_is_not_asked_for_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    for common in (Common(as_json=True), Common(output="json")):
        assert common.json
        common.show({"items": [1], "next": None})
        assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "items": [1], "next": None}
    assert not Common().json and Common(output="ndjson").json


def test_progress_is_an_object_among_lines_and_talk_else(capsys: pytest.CaptureFixture[str]) -> None:
    for common in (Common(output="ndjson"), Common(as_json=True), Common(quiet=True)):
        common.tell_progress("7 of 20", {"read": 7})
    told = capsys.readouterr()
    assert (told.out, told.err) == ('{"schema_version": 1, "progress": {"read": 7}}\n', "7 of 20\n")


def test_a_document_without_a_title_is_called_by_the_next_best_of_its_names() -> None:
    names = {"title": None, "filename": "", "source_uri": "http://here/x", "external_id": "x"}
    assert (called(names), called(names | {"title": "Of herons"}), called({"external_id": "x"}), called({})) == ("http://here/x", "Of herons", "x", None)
