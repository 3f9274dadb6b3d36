"""Every query has a purpose and a unique name, and is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sql.query_loader import FOLDER, load_query, read_queries

QUERIES = read_queries(FOLDER)
SOURCES = "\n".join(path.read_text() for path in FOLDER.parent.rglob("*.py"))


@pytest.mark.parametrize("name", QUERIES)
def test_query_has_purpose_and_is_used(name: str) -> None:
    assert re.match(r"-- [A-Z`].{10,}\n", QUERIES[name]), name
    is_included = any(f"{{{name}}}" in text for text in QUERIES.values())
    call = rf"""(load_query|_?fetch\w*|execute\w*)\((\s*[\w.]+,)?\s*["']{name}["'][,)]"""
    assert is_included or re.search(call, SOURCES), name


def test_includes_and_dimensions_are_substituted() -> None:
    text = load_query("semantic_near", dimension=384)
    assert "halfvec(384)" in text and "d.collection = any ($5)" in text and "{" not in text


def test_unknown_query_is_refused() -> None:
    with pytest.raises(ValueError, match="Unknown query 'documnets'"):
        load_query("documnets")


def test_two_queries_of_one_name_are_refused(tmp_path: Path) -> None:
    for file in ("first.sql", "second.sql"):
        (tmp_path / file).write_text("-- name: count_rows\n-- Number of rows.\nselect count(*)\n")
    with pytest.raises(ValueError, match="Two queries are named 'count_rows'"):
        read_queries(tmp_path)
