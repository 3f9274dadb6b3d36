from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest

from schemas.amendments import Saying, holds, spoken, what_holds


def revision(order: int, **said: Any) -> Saying:
    return Saying((1, order), UUID(int=order), spoken(said), True)


def amendment(order: int, **said: Any) -> Saying:
    return Saying((1, order), UUID(int=order), said, False)


FIRST, NEXT = revision(1, title="given", tags=["a"], metadata={"k": 1, "l": 2}), revision(5)


@pytest.mark.parametrize(
    ("sayings", "expected"),
    [
        ([FIRST], ("given", ("a",), {"k": 1, "l": 2}, ())),
        ([FIRST, amendment(2, title="amended")], ("amended", ("a",), {"k": 1, "l": 2}, ("title",))),
        ([FIRST, amendment(2, title="")], (None, ("a",), {"k": 1, "l": 2}, ("title",))),
        ([FIRST, amendment(2, tags=[]), amendment(3, tags=["c"])], ("given", ("c",), {"k": 1, "l": 2}, ("tags",))),
        ([FIRST, amendment(2, metadata={"k": None, "m": 3})], ("given", ("a",), {"l": 2, "m": 3}, ("metadata",))),
        ([FIRST, amendment(2, title="amended"), NEXT], ("amended", (), {}, ("title",))),
        ([FIRST, amendment(0, title="amended")], ("given", ("a",), {"k": 1, "l": 2}, ())),
        ([FIRST, amendment(2, title="amended"), revision(3, title="again"), NEXT], (None, (), {}, ())),
        ([amendment(0, metadata={"k": 5, "m": 6}), FIRST], ("given", ("a",), {"k": 1, "l": 2, "m": 6}, ("metadata",))),
    ],
)
def test_what_was_said_last_of_a_field_holds_in_whatever_order_it_came(sayings: list[Saying], expected: tuple[Any, ...]) -> None:
    for order in permutations(sayings):
        found = what_holds(order)
        assert found is not None
        assert (found.title, found.tags, found.metadata, found.amended) == expected


def test_without_a_revision_nothing_holds_yet() -> None:
    assert what_holds([amendment(1, title="t")]) is None


def test_an_amendment_holds_while_nothing_later_speaks_of_all_that_it_says() -> None:
    early, late = amendment(2, title="x", tags=["t"]), amendment(3, title="y")
    assert holds(early, [FIRST, early, late])
    assert not holds(early, [FIRST, early, late, amendment(4, tags=[])])


def test_an_amendment_that_is_read_again_still_holds() -> None:
    known = amendment(2, title="x")
    assert holds(replace(known), [FIRST, known])
