from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import content_id, fingerprint

id_parts = st.recursive(
    st.none() | st.text() | st.binary() | st.integers() | st.uuids(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(one=st.lists(id_parts, max_size=4), two=st.lists(id_parts, max_size=4))
def test_different_parts_give_different_ids(one: list[object], two: list[object]) -> None:
    assert (content_id("kind", *one) == content_id("kind", *two)) == (one == two)  # type: ignore[arg-type]


def test_adjacent_parts_are_not_concatenated() -> None:
    assert content_id("kind", "ab", "c") != content_id("kind", "a", "bc")
    assert content_id("kind", "1") != content_id("kind", 1)


def test_content_id_is_a_stable_uuid_v8() -> None:
    found = content_id("document", "default", "", "contract-17")
    assert found == UUID("22c8050f-a3c7-8317-bc3a-f0c35dd37af8")
    assert found.version == 8
    assert found.variant == "specified in RFC 4122"


@pytest.mark.parametrize("part", [True, 1.5, {"a": 1}])
def test_unsupported_part_type_is_rejected(part: object) -> None:
    with pytest.raises(TypeError):
        content_id("kind", part)  # type: ignore[arg-type]


def test_fingerprint_ignores_key_order() -> None:
    assert (
        fingerprint({"a": 1, "b": 2})
        == fingerprint({"b": 2, "a": 1})
        != fingerprint({"a": 2, "b": 1})
    )
