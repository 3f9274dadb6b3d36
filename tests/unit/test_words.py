from __future__ import annotations

import pytest

from retrieval.question.words import (
    blank_struck,
    extract_content_words,
    extract_word_keys,
    split_words,
    stem_word,
)


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


def test_scripts_without_spaces_are_cut_into_pairs() -> None:
    assert split_words("停车费是5元。OK") == ["停车", "车费", "费是", "5", "元", "ok"]
    assert split_words("入場料は") == ["入場", "場料", "料は"]


def test_acronym_in_capitals_is_no_function_word() -> None:
    assert "who" in extract_content_words("When is the WHO visit?", "en")
    assert "who" not in extract_content_words("Who visits?", "en")
    assert "who" not in extract_content_words("WHO VISITS?", "en")


def test_possessives_and_elided_articles_share_a_key() -> None:
    assert {stem_word(word) for word in ("Maria's", "Maria’s", "maria")} == {stem_word("Maria")}
    assert stem_word("l'hôtel") == stem_word("d’hotel") == stem_word("hotel")


def test_struck_text_is_blanked_in_place() -> None:
    assert blank_struck("costs ~~90~~ 72") == "costs        72"
    assert blank_struck("a ~~ b") == "a ~~ b"
