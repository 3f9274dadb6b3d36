"""Every statement is a file that says what it is for, and is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sql.statements import FOLDER, statement

FILES = sorted(FOLDER.glob("*.sql"))
USED = "\n".join(path.read_text() for path in [*FOLDER.parent.glob("*.py"), *FILES])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_first_line_says_what_it_is_for_and_somebody_asks_for_it(path: Path) -> None:
    assert re.match(r"-- [A-Z`].{10,}", path.read_text()), path.name
    assert re.search(rf"""["'{{]{path.stem}["'}}]""", USED), f"{path.name} is used nowhere"


def test_an_included_file_and_a_number_are_put_in_place() -> None:
    text = statement("semantic_near", dimension=384)
    assert "halfvec(384)" in text and "d.collection = any ($5)" in text and "{" not in text
