from __future__ import annotations

import pytest

from retrieval.words import extract_word_keys


@pytest.mark.parametrize(
    ("words", "digits"),
    [
        ("plant three", "plant 3"),
        ("Werk zwölf", "Werk 12"),
        ("zona sete", "zona 7"),
        ("planta cuatro", "planta 4"),
        ("usine neuf", "usine 9"),
    ],
)
def test_spelled_number_has_the_key_of_its_digits(words: str, digits: str) -> None:
    assert extract_word_keys(words) == extract_word_keys(digits)


def test_date_in_digits_has_the_key_of_its_month() -> None:
    assert extract_word_keys("July") <= extract_word_keys("| 2025-07 | 58900 |")
    assert not extract_word_keys("August") <= extract_word_keys("| 2025-07 | 58900 |")
