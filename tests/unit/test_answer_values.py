from __future__ import annotations

import pytest

from retrieval.question.answer_values import (
    choose_cell,
    choose_value,
    detect_answer_type,
    find_value,
    holds_other_dimension,
    lacks_count,
)


@pytest.mark.parametrize(
    ("question", "sentence", "value"),
    [
        (
            "How much is the fee for the second boat?",
            "The fee is 210 euros for the first boat and 90 euros for the second.",
            "90 euros",
        ),
        (
            "How many days may a guest stay?",
            "Two guests may stay for 14 days and pay 3 keys.",
            "14",
        ),
        (
            "To how many Nm are the bolts of the QR-35 tightened?",
            "Bolts are tightened to 45 Nm for the QR-20, 60 Nm for the QR-35.",
            "60",
        ),
        ("How long is the notice?", "Artigo 3.º O prazo é de vinte dias.", "vinte"),
        ("How many steps are there?", "She counts ninety-seven steps.", "ninety-seven"),
        ("How many rooms are there?", "A one-way street leads to five rooms.", "five"),
        ("Who keeps the keys?", "The keys are kept by Nora Kestrel.", "Nora Kestrel"),
        (
            "When does the term end?",
            "It begins on 1 May 2024 and ends on 30 June 2029.",
            "30 June 2029",
        ),
        (
            "What was the number of employees at the end of 2024?",
            "At the end of 2024 there were 203 employees in six offices.",
            "203",
        ),
        (
            "Wie hoch war die Anzahl der Mitarbeiter?",
            "In sechs Werken arbeiten 203 Mitarbeiter.",
            "203",
        ),
        ("How wide is the QR-20?", "The QR-20 weighs 9.4 kg and is 31 cm wide.", "31"),
        ("De quanto é a caução?", "A caução é de duas rendas, isto é, 2.300 euros.", "2.300"),
        ("Who led the trial?", "The trial was led by Dr. Henrike Aldous.", "Dr. Henrike Aldous"),
        ("Who muted the alarm?", "The alarm was muted in April.", None),
        # Nothing tells the two numbers apart.
        ("How many are there?", "Room 12 lies above room 14.", None),
        ("What does an employee who leaves lose?", "For a year, Nora pays.", None),
    ],
)
def test_value_nearest_to_the_words_of_the_question_is_chosen(
    question: str, sentence: str, value: str | None
) -> None:
    span = choose_value(detect_answer_type(question), sentence, question)
    assert (sentence[slice(*span)] if span else None) == value


def test_form_of_a_word_in_the_question_is_no_answer() -> None:
    cell = choose_cell(
        ("Lamp", "Meaning", "Remedy"),
        ["Flashing blue", "Scale", "Descale the machine"],
        "What does it mean that the blue lamp flashes?",
        None,
    )
    assert cell == 1


def test_heated_feed_water_costs_nothing() -> None:
    assert detect_answer_type("What is the limit for the feed water temperature?") != "money"


SITES = ("Site", "Opened", "Staff")


@pytest.mark.parametrize(
    ("question", "cell"),
    [
        ("How many staff does Porto have?", 2),
        ("When was Porto opened?", 1),
        ("What about Porto?", None),
    ],
)
def test_cell_under_the_column_of_the_question_is_chosen(question: str, cell: int | None) -> None:
    answer_type = detect_answer_type(question)
    assert choose_cell(SITES, ["Porto", "2023", "64"], question, answer_type) == cell


@pytest.mark.parametrize(
    ("question", "text", "is_other"),
    [
        ("At what temperature does tungsten melt?", "Depois baixa cerca de 35 centímetros.", True),
        ("At what temperature is it kept?", "La température est maintenue à 27,5 °C.", False),
        ("At what temperature is it kept?", "Temperature (°C): 27; depth: 3 m", False),
        ("Wie warm ist das Becken?", "about ninety degrees, 3 m deep", False),
        ("What temperature does the model sample at?", "The temperature is 0.2.", False),
        ("How heavy is the crate?", "It is 3 m wide.", True),
        ("How heavy is the crate?", "It is 3 m wide and weighs 14 kg.", False),
        ("What is the weight of this channel?", "The weight is 0.5.", False),
        ("How high is the fee?", "The fee is 3 euros.", False),
        ("How high is the fee?", "The fee is 3 euros. The lift carries 450 kg.", False),
        ("How high is the tower?", "The lift carries 450 kg.", True),
        ("Who built the dam?", "It is 14 m high.", False),
        ("What is the speed limit?", "The channel is 30 metres wide.", True),
        ("What is the speed limit?", "No more than 6 knots, 150 metres away.", False),
        ("Qual é a velocidade máxima?", "30 km/h em 200 m", False),
        ("What is the speed of the pump?", "It weighs 4 kg: 1,450 turns per minute.", False),
    ],
)
def test_quantities_of_another_dimension_are_told(question: str, text: str, is_other: bool) -> None:
    assert holds_other_dimension(question, [text]) == is_other


@pytest.mark.parametrize(
    ("question", "text", "value"),
    [
        ("What is the speed limit?", "From 6 April it works between buoys 11 and 19.", None),
        ("What is the speed limit?", "Vessels pass at no more than 6 knots.", "6"),
        ("What is the weight?", "Weight (kg): 14", "14"),
        ("How many people use the weight room?", "The weight room has 14 users.", "14"),
        ("How high is the fee?", "The fee is 3 euros.", "3"),
    ],
)
def test_value_has_the_unit_of_the_dimension(question: str, text: str, value: str | None) -> None:
    span = find_value(detect_answer_type(question), text, question)
    assert (text[slice(*span)] if span else None) == value


@pytest.mark.parametrize(
    ("question", "language", "text", "is_lacking"),
    [
        ("Quantos inquilinos tem a casa?", "pt", "The house has 12 tenants.", False),
        ("Quantos inquilinos tem a casa?", "pt", "Tenants (2025): 12", False),
        ("Quantos inquilinos tem a casa?", "pt", "The house has fourteen tenants.", False),
        ("Quantos inquilinos tem a casa?", "pt", "The house has a dozen tenants.", False),
        ("Quantos inquilinos tem a casa?", "pt", "Each tenant of the house has 2 keys.", True),
        ("Quantos carros tem a casa?", "pt", "The house has 12 tenants, who share a car.", True),
        ("Quantos carros tem a casa?", "pt", "A tenant has a car.", True),
        ("Quantos zblorts tem a casa?", "pt", "The house has 12 tenants.", False),
        ("Que caução paga o inquilino?", "pt", "The house has 12 tenants.", False),
        ("How many cars are there?", "en", "The house has 12 automobiles.", False),
        ("Combien de locataires ?", "fr", "The house has 12 tenants.", False),
    ],
)
def test_number_of_other_things_is_told(
    question: str, language: str, text: str, is_lacking: bool
) -> None:
    assert lacks_count(question, language, [(text, "en")]) == is_lacking
