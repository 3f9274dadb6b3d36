from __future__ import annotations

from typing import Any

import pytest

from anabranch.cli.ask import _place
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


def test_a_document_without_a_title_is_called_by_the_next_best_of_its_names() -> None:
    names = {"title": None, "filename": "", "source_uri": "http://here/x", "external_id": "x"}
    assert (called(names), called(names | {"title": "Of herons"}), called({"external_id": "x"}), called({})) == ("http://here/x", "Of herons", "x", None)
