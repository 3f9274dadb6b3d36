"""Lexemes and positions parsed from a printed tsvector."""

from __future__ import annotations

import pytest

from sql.index.chunk_views import LexemePositions

TSVECTOR = r"'''quot':3 'a\\b':2,9A 'heron':1,4 'x y':7"


def test_lexeme_positions_are_parsed() -> None:
    words = LexemePositions(TSVECTOR)
    assert (
        words["heron"] == [1, 4]
        and words["a\\b"] == [2, 9]
        and words["'quot"] == [3]
        and words["x y"] == [7]
    )


def test_partial_lexeme_is_not_found() -> None:
    words = LexemePositions(TSVECTOR)
    assert "her" not in words and "quot" not in words and "y" not in words
    with pytest.raises(KeyError):
        words["eron"]


def test_all_lexemes_are_iterated_once() -> None:
    assert dict(LexemePositions(TSVECTOR)) == {
        "'quot": [3],
        "a\\b": [2, 9],
        "heron": [1, 4],
        "x y": [7],
    }
    assert len(LexemePositions("")) == 0
