"""A tsvector's words and their places, read from its printed form."""

from __future__ import annotations

import pytest

from sql.positions import Positions

PRINTED = r"'''quot':3 'a\\b':2,9A 'heron':1,4 'x y':7"


def test_a_word_gives_its_places() -> None:
    words = Positions(PRINTED)
    assert words["heron"] == [1, 4] and words["a\\b"] == [2, 9] and words["'quot"] == [3] and words["x y"] == [7]


def test_a_part_of_a_word_is_no_word() -> None:
    words = Positions(PRINTED)
    assert "her" not in words and "quot" not in words and "y" not in words
    with pytest.raises(KeyError):
        words["eron"]


def test_all_words_come_once() -> None:
    assert dict(Positions(PRINTED)) == {"'quot": [3], "a\\b": [2, 9], "heron": [1, 4], "x y": [7]}
    assert len(Positions("")) == 0
