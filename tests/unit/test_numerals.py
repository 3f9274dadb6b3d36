"""Numbers in words have the value that they say."""

from __future__ import annotations

import pytest

from evaluation.answers_eval import contains, normalize_text
from retrieval.answering.extractive_answer import mark_place
from retrieval.question.answer_values import choose_value
from retrieval.question.numerals import find_spelled_numbers
from retrieval.question.quantities import find_quantities
from retrieval.redaction import Redactor
from schemas.profiles import RedactionProfile


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("four hundred and fifty euros", [450]),
        ("a hundred and twenty boats", [120]),
        ("two thousand five hundred", [2500]),
        ("nineteen hundred", [1900]),
        ("three million two hundred thousand", [3_200_000]),
        ("ninety-seven of one hundred and one", [97, 101]),
        ("quatrocentos e cinquenta reais", [450]),
        ("dois mil e quinhentos", [2500]),
        ("vinte e três dias", [23]),
        ("cuatrocientos cincuenta euros", [450]),
        ("veintidós y treinta y dos", [22, 32]),
        ("quatre cent cinquante", [450]),
        ("quatre-vingt-dix-sept ou soixante et onze", [97, 71]),
        ("vierhundertfünfzig Euro", [450]),
        ("zweitausenddreihundertfünfundzwanzig", [2325]),
        # Not one number: two of them, one simple word, or none.
        ("three and four boats", []),
        ("seis e sete", []),
        ("cinco", []),
        ("a one-way ticket for two hundred-litre drums", []),
        ("hundred", []),
        ("fifty cents and twenty euros", []),
    ],
)
def test_numbers_in_words_are_read(text: str, values: list[int]) -> None:
    assert [number.value for number in find_spelled_numbers(text)] == values


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("The deposit is four hundred and fifty euros.", ("450", "EUR")),
        ("A caução é de mil e duzentos reais.", ("1200", "BRL")),
        ("Die Kaution beträgt dreihundertfünfzig Euro.", ("350", "EUR")),
        ("La fianza es de doscientos cincuenta euros.", ("250", "EUR")),
        ("La caution est de cinq cents euros.", ("500", "EUR")),
        ("It costs two million dollars.", ("2000000", "USD")),
    ],
)
def test_amounts_in_words_are_amounts_of_money(text: str, amount: tuple[str, str]) -> None:
    (quantity,) = find_quantities(text)
    assert (quantity.kind, quantity.value, quantity.unit) == ("money", *amount)


@pytest.mark.parametrize(
    ("question", "sentence", "marked"),
    [
        (
            "What is the price of the hall?",
            "The hall costs four hundred and fifty euros.",
            "**four hundred and fifty euros** (450)",
        ),
        (
            "Quantos dias dura o curso?",
            "O curso dura vinte e três dias.",
            "**vinte e três** (23) dias",
        ),
        ("How many boats fit?", "The pier takes twelve boats.", "**twelve** boats"),
        ("How many boats fit?", "The pier takes 22 boats.", "**22** boats"),
    ],
)
def test_marked_number_in_several_words_is_shown_in_digits_too(
    question: str, sentence: str, marked: str
) -> None:
    answer_type = "money" if "price" in question else "number"
    place = choose_value(answer_type, sentence, question)
    assert place is not None
    shown = mark_place(sentence, place, Redactor(RedactionProfile(), question))
    assert marked in shown
    assert not marked.endswith("(450)") or contains(normalize_text(shown), "450")
