"""Words of a question are found in a text of the other language by the dictionary."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from retrieval.question.translation import guess_by_dictionary, match_words
from retrieval.question.words import extract_content_words, extract_word_keys

LEASE = extract_word_keys(
    "The tenant pays a deposit of 2,670 euros, and Anna Renn gave the keys to both cities."
)


@pytest.mark.parametrize(
    "word",
    ["caução", "inquilino", "chaves", "cidades", "cidade", "pagou", "pagaram", "deu", "Renn"],
)
def test_translated_word_is_held(word: str) -> None:
    assert match_words([word], "pt-BR", "en", LEASE) == [True]


def test_missing_and_unknown_words_are_told_apart() -> None:
    assert match_words(["seguro", "jardim", "Quillon"], "pt", "en", LEASE) == [False, False, None]


def test_words_of_one_language_are_compared_as_they_are() -> None:
    assert match_words(["tenant", "caução"], "en", "en-GB", LEASE) == [True, False]


def test_words_of_a_language_without_dictionary_are_unknown() -> None:
    assert match_words(["Mieter", "euros"], "de", "en", LEASE) == [None, True]
    assert match_words(["caução"], None, "en", LEASE) == [None]
    assert match_words(["caução"], "pt", "de", LEASE) == [None]


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("norte", "south"),
        ("mãe", "father"),
        ("semana", "month"),
        ("senhorio", "tenant"),
        ("comprador", "seller"),
        ("máximo", "minimum"),
        ("entrada", "exit"),
        ("verão", "winter"),
        ("vermelho", "green"),
        ("nascer", "die"),
    ],
)
def test_opposite_is_no_translation(word: str, other: str) -> None:
    assert match_words([word], "pt", "en", extract_word_keys(other)) == [False]


def test_function_words_are_no_translations() -> None:
    # The key of "depois" is that of "depo", a form of "depor".
    assert match_words(["deposit"], "en", "pt", {"depo", "entr", "sao"}) == [False]


def test_text_of_unknown_language_may_be_of_either() -> None:
    assert match_words(["deposit", "tenant"], "en", None, LEASE) == [True, True]
    assert match_words(["caução", "seguro"], "pt", None, LEASE) == [True, False]


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Que bandeira mostra o navio Petrel de dia?", "pt"),
        ("Which flag does the ship Petrel show?", "en"),
        ("Petrel Kessel Obrist?", None),
    ],
)
def test_language_is_guessed_by_words_of_one_dictionary(
    question: str, language: str | None
) -> None:
    assert guess_by_dictionary(extract_content_words(question)) == language


def test_dictionary_lines_are_sorted_pairs_of_words() -> None:
    lines = (
        (files("retrieval.question") / "translations.txt").read_text(encoding="utf-8").splitlines()
    )
    assert lines == sorted(set(lines))
    assert [line for line in lines if not re.fullmatch(r"[^|]+\|[^|]+", line)] == []
    assert [word for line in lines for word in re.split(r"[ |]", line) if not word.islower()] == []
