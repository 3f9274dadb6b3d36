"""Every statement is a file that says what it is for, and is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sql.query_loader import FOLDER, load_query

QUERY_FILES = sorted(FOLDER.glob("*.sql"))
QUERY_USERS = "\n".join(path.read_text() for path in [*FOLDER.parent.glob("*.py"), *QUERY_FILES])


@pytest.mark.parametrize("path", QUERY_FILES, ids=lambda path: path.stem)
def test_query_file_has_description_and_is_used(path: Path) -> None:
    assert re.match(r"-- [A-Z`].{10,}", path.read_text()), path.name
    assert re.search(rf"""["'{{]{path.stem}["'}}]""", QUERY_USERS), f"{path.name} is used nowhere"


def test_includes_and_dimensions_are_substituted() -> None:
    text = load_query("semantic_near", dimension=384)
    assert "halfvec(384)" in text and "d.collection = any ($5)" in text and "{" not in text
