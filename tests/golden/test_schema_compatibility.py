"""Compatible and incompatible changes of a schema."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model

from tests.golden.schema_compatibility import find_incompatibilities, find_removed_fields


class InnerSchema(BaseModel):
    word: str
    count: int = 0


class BaseSchema(BaseModel):
    title: str
    note: str | None = None
    size: int = Field(0, ge=0, le=10)
    kind: Literal["a", "b"] = "a"
    inner: InnerSchema | None = None
    many: list[InnerSchema] = []
    table: dict[str, int] = {}
    either: int | str = 0


class ClosedInnerSchema(InnerSchema):
    model_config = ConfigDict(extra="forbid")


class RequiredInnerSchema(InnerSchema):
    count: int


def change_schema(**fields: Any) -> dict[str, Any]:
    return create_model("Base", __base__=BaseSchema, **fields).model_json_schema(mode="validation")


OLD_SCHEMA = BaseSchema.model_json_schema(mode="validation")


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
        ({"inner": (RequiredInnerSchema | None, None)}, "$.inner"),
        ({"many": (list[RequiredInnerSchema], [])}, "$.many[].count is required"),
        ({"many": (list[ClosedInnerSchema], [])}, "$.many[]: other fields"),
        ({"table": (dict[str, str], {})}, "$.table[]"),
        ({"either": (int, 0)}, "$.either"),
        ({"either": (int | str | None, 0)}, None),
        ({"fresh": (int, 0)}, None),
        ({"title": (str | None, None)}, None),
    ],
)
def test_schema_change_is_classified_as_compatible_or_not(
    fields: dict[str, Any], place: str | None
) -> None:
    found = find_incompatibilities(OLD_SCHEMA, change_schema(**fields))
    assert found == [] if place is None else any(each.startswith(place) for each in found), found


def test_removed_field_is_reported_at_any_depth() -> None:
    class Smaller(BaseModel):
        word: str

    without = {name: value for name, value in OLD_SCHEMA["properties"].items() if name != "note"}
    inner = {**OLD_SCHEMA["$defs"], "InnerSchema": Smaller.model_json_schema()}
    assert find_removed_fields(OLD_SCHEMA, OLD_SCHEMA | {"properties": without}) == ["$.note"]
    assert find_removed_fields(OLD_SCHEMA, OLD_SCHEMA | {"$defs": inner}) == [
        "$.inner.count",
        "$.many[].count",
    ]
    assert (
        find_removed_fields(OLD_SCHEMA, change_schema(fresh=(int, 0))) == []
        and find_incompatibilities(OLD_SCHEMA, OLD_SCHEMA) == []
    )
