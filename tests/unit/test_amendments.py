from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest

from schemas.amendments import FieldStatement, is_effective, resolve_amendments, stated_fields


def make_revision(order: int, **fields: Any) -> FieldStatement:
    return FieldStatement((1, order), UUID(int=order), stated_fields(fields), True)


def make_amendment(order: int, **fields: Any) -> FieldStatement:
    return FieldStatement((1, order), UUID(int=order), fields, False)


FIRST, NEXT = (
    make_revision(1, title="given", tags=["a"], metadata={"k": 1, "l": 2}),
    make_revision(5),
)


@pytest.mark.parametrize(
    ("sayings", "expected"),
    [
        ([FIRST], ("given", ("a",), {"k": 1, "l": 2}, ())),
        (
            [FIRST, make_amendment(2, title="amended")],
            ("amended", ("a",), {"k": 1, "l": 2}, ("title",)),
        ),
        ([FIRST, make_amendment(2, title="")], (None, ("a",), {"k": 1, "l": 2}, ("title",))),
        (
            [FIRST, make_amendment(2, tags=[]), make_amendment(3, tags=["c"])],
            ("given", ("c",), {"k": 1, "l": 2}, ("tags",)),
        ),
        (
            [FIRST, make_amendment(2, metadata={"k": None, "m": 3})],
            ("given", ("a",), {"l": 2, "m": 3}, ("metadata",)),
        ),
        ([FIRST, make_amendment(2, title="amended"), NEXT], ("amended", (), {}, ("title",))),
        ([FIRST, make_amendment(0, title="amended")], ("given", ("a",), {"k": 1, "l": 2}, ())),
        (
            [FIRST, make_amendment(2, title="amended"), make_revision(3, title="again"), NEXT],
            (None, (), {}, ()),
        ),
        (
            [make_amendment(0, metadata={"k": 5, "m": 6}), FIRST],
            ("given", ("a",), {"k": 1, "l": 2, "m": 6}, ("metadata",)),
        ),
    ],
)
def test_latest_amendment_of_each_field_wins_in_any_order(
    sayings: list[FieldStatement], expected: tuple[Any, ...]
) -> None:
    for order in permutations(sayings):
        found = resolve_amendments(order)
        assert found is not None
        assert (found.title, found.tags, found.metadata, found.amended_fields) == expected


def test_amendment_without_revision_resolves_to_nothing() -> None:
    assert resolve_amendments([make_amendment(1, title="t")]) is None


def test_amendment_is_effective_until_fully_superseded() -> None:
    early, late = make_amendment(2, title="x", tags=["t"]), make_amendment(3, title="y")
    assert is_effective(early, [FIRST, early, late])
    assert not is_effective(early, [FIRST, early, late, make_amendment(4, tags=[])])


def test_redelivered_amendment_is_still_effective() -> None:
    amendment = make_amendment(2, title="x")
    assert is_effective(replace(amendment), [FIRST, amendment])
