"""What counts as an incompatible change of a schema, and what does not."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model

from tests.golden.compatibility import lost, refusals


class Inner(BaseModel):
    word: str
    count: int = 0


class Base(BaseModel):
    title: str
    note: str | None = None
    size: int = Field(0, ge=0, le=10)
    kind: Literal["a", "b"] = "a"
    inner: Inner | None = None
    many: list[Inner] = []
    table: dict[str, int] = {}
    either: int | str = 0


class Stricter(Inner):
    model_config = ConfigDict(extra="forbid")


class Demanding(Inner):
    count: int


def changed(**fields: Any) -> dict[str, Any]:
    return create_model("Base", __base__=Base, **fields).model_json_schema(mode="validation")


THEN = Base.model_json_schema(mode="validation")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"fresh": (int, ...)}, "$.fresh is required"),
        ({"note": (str | None, ...)}, "$.note is required"),
        ({"note": (str, "")}, "$.note"),
        ({"title": (int, ...)}, "$.title"),
        ({"size": (int, Field(0, ge=1, le=10))}, "$.size: minimum"),
        ({"size": (int, Field(0, ge=0, le=9))}, "$.size: maximum"),
        ({"size": (float, Field(0, ge=0, le=10, multiple_of=None))}, None),
        ({"title": (str, Field(pattern="^a"))}, "$.title: pattern"),
        ({"title": (str, Field(max_length=9))}, "$.title: maxLength"),
        ({"kind": (Literal["a"], "a")}, "$.kind"),
        ({"kind": (Literal["a", "b", "c"], "a")}, None),
        ({"inner": (Demanding | None, None)}, "$.inner"),
        ({"many": (list[Demanding], [])}, "$.many[].count is required"),
        ({"many": (list[Stricter], [])}, "$.many[]: other fields"),
        ({"table": (dict[str, str], {})}, "$.table[]"),
        ({"either": (int, 0)}, "$.either"),
        ({"either": (int | str | None, 0)}, None),
        ({"fresh": (int, 0)}, None),
        ({"title": (str | None, None)}, None),
    ],
)
def test_what_was_taken_must_still_be_taken(fields: dict[str, Any], place: str | None) -> None:
    found = refusals(THEN, changed(**fields))
    assert found == [] if place is None else any(each.startswith(place) for each in found), found


def test_a_field_that_is_gone_is_lost_wherever_it_was() -> None:
    class Smaller(BaseModel):
        word: str

    without = {name: value for name, value in THEN["properties"].items() if name != "note"}
    inner = {**THEN["$defs"], "Inner": Smaller.model_json_schema()}
    assert lost(THEN, THEN | {"properties": without}) == [".note"]
    assert lost(THEN, THEN | {"$defs": inner}) == ["Inner.count"]
    assert lost(THEN, changed(fresh=(int, 0))) == [] and refusals(THEN, THEN) == []
