"""Releases of Python with known faults are named."""

from __future__ import annotations

import pytest

from anabranch.config.python_release import ADVISORIES, get_safe_release, list_advisories


@pytest.mark.parametrize(
    ("version", "identifiers"),
    [
        ((3, 11, 7), {advisory.identifier for advisory in ADVISORIES}),
        ((3, 11, 9), {"CVE-2024-7592", "CVE-2025-6069"}),
        ((3, 11, 14), set()),
        ((3, 12, 5), {"CVE-2024-7592", "CVE-2025-6069"}),
        ((3, 12, 12), set()),
        ((3, 13, 0), {"CVE-2025-6069"}),
        ((3, 14, 0), set()),
        ((3, 15, 0), set()),
    ],
)
def test_unsafe_patch_releases_are_named(
    version: tuple[int, int, int], identifiers: set[str]
) -> None:
    found = {advisory.identifier for advisory in list_advisories(version)}
    assert found == identifiers
    if identifiers:
        major, minor, patch = map(int, get_safe_release(version).split("."))
        assert not list_advisories((major, minor, patch))
