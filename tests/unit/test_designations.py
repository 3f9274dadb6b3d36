"""Things of one kind are distinguished by their number, letter or code."""

from __future__ import annotations

import pytest

from engines.sentence_splitter import RuleSentenceSplitter
from retrieval.answering.confidence import find_missing_terms
from retrieval.answering.designations import find_designations, index_designations
from retrieval.answering.row_ranking import demote_others_of_kind
from retrieval.question.query_plan import plan_query
from retrieval.question.question_terms import index_text_terms
from retrieval.question.words import stem_word
from retrieval.ranking.quote_candidates import extract_quote_candidates
from tests.unit.retrieval_fakes import GuessedLanguageDetector, LowercaseNameFolder
from tests.unit.retrieval_memory_index import make_contexts


def list_kept(text: str, question: str) -> list[str]:
    candidates = extract_quote_candidates(make_contexts(text), RuleSentenceSplitter(), question)
    scores = demote_others_of_kind(candidates, question, [1.0] * len(candidates))
    return [item.text for item, score in zip(candidates, scores, strict=True) if score > 0]


AURORA = (
    "The Aurora 5 heat pump costs 4,200 euros. It needs a 16 A fuse.\n\n"
    "The Aurora 7 heat pump costs 5,300 euros. It needs a 20 A fuse.\n\n"
    "Both are installed in two days."
)
SECTIONS = (
    "# Line 1\n\nA ride takes 22 minutes.\n\n# Line 3\n\nA ride takes 35 minutes.\n\n"
    "# Fares\n\nA ticket costs 2 euros."
)


@pytest.mark.parametrize(
    ("text", "question", "kept"),
    [
        (
            AURORA,
            "Which fuse does the Aurora 7 need?",
            [
                "The Aurora 7 heat pump costs 5,300 euros.",
                "It needs a 20 A fuse.",
                "Both are installed in two days.",
            ],
        ),
        (
            AURORA.replace("Aurora 7", "Aurora-7"),
            "How much does the Aurora 7 cost?",
            [
                "The Aurora-7 heat pump costs 5,300 euros.",
                "It needs a 20 A fuse.",
                "Both are installed in two days.",
            ],
        ),
        (
            SECTIONS,
            "How long does a ride on line 3 take?",
            ["A ride takes 35 minutes.", "A ticket costs 2 euros."],
        ),
        (
            "Tank T-902 holds oil. Tank T\u2011903 holds water. Tank T904 holds sand.",
            "What does tank T-903 hold?",
            ["Tank T\u2011903 holds water."],
        ),
        (
            "The seal KX\u00ad4430 fits pump three. The filter KX-5510/B fits pump four.",
            "Which pump does KX-4430 fit?",
            ["The seal KX\u00ad4430 fits pump three."],
        ),
        (
            "A sala 12 tem 30 lugares. A sala 14 tem 55 lugares. As salas fecham às 18h.",
            "Quantos lugares tem a sala 14?",
            ["A sala 14 tem 55 lugares.", "As salas fecham às 18h."],
        ),
        (
            "Halle B fasst 800 Paletten. Halle C fasst 1.200 Paletten.",
            "Wie viele Paletten fasst Halle C?",
            ["Halle C fasst 1.200 Paletten."],
        ),
        (
            "Le quai A compte 12 places. Le quai B compte 20 places.",
            "Combien de places compte le quai B ?",
            ["Le quai B compte 20 places."],
        ),
        (
            "El aula 3 cierra a las seis. El aula 4 cierra a las ocho.",
            "¿Cuándo cierra el aula 4?",
            ["El aula 4 cierra a las ocho."],
        ),
        (
            "Revenue in Q3 was 4 million. Revenue in Q4 was 6 million.",
            "What was the revenue in Q4?",
            ["Revenue in Q4 was 6 million."],
        ),
        # What is said of a series holds for its members, and HX-11S is no member of HX-11.
        (
            "The KV3 pumps need VG 220 oil. The KV3-20 weighs 9 kg. The KV3-35 weighs 12 kg.",
            "How heavy is the KV3-20?",
            ["The KV3 pumps need VG 220 oil.", "The KV3-20 weighs 9 kg."],
        ),
        (
            "The HX-11 has 30 plates. The HX-11S has 34 plates. The HX-9 has 20 plates.",
            "How many plates does the HX-11S have?",
            ["The HX-11S has 34 plates."],
        ),
        # A sentence about both is about the one.
        (
            "Unlike T-902, tank T-903 is heated. Tank T-902 is cold.",
            "Is tank T-903 heated?",
            ["Unlike T-902, tank T-903 is heated."],
        ),
    ],
)
def test_sentences_about_another_of_the_kind_are_last(
    text: str, question: str, kept: list[str]
) -> None:
    assert list_kept(text, question) == kept


@pytest.mark.parametrize(
    ("text", "question"),
    [
        # The others are what the question is about.
        ("Tank T-902 holds 5 liters. Tank T-903 holds 9 liters.", "Which holds more than T-902?"),
        ("Hall B has 8 doors. Hall C has 9 doors.", "How do hall B and hall C differ?"),
        # Nothing is about the thing itself: whether to refuse is decided by the documents.
        ("Tank T-902 holds 5 liters. Tank T-904 holds 9 liters.", "What does tank T-903 hold?"),
        ("The KV3 needs oil. The KV3-20 weighs 9 kg.", "Which oil do the KV3 pumps need?"),
        # Quantities designate nothing.
        ("The day pass costs 9 euros. The week pass costs 12 euros.", "Is 12 euros a fair price?"),
        ("It opens at 10:30. It closes at 18:45.", "What happens at 10:30?"),
        ("The hall has 12 doors and 30 seats.", "Which hall has 12 doors?"),
    ],
)
def test_all_sentences_stay_where_nothing_is_told_apart(text: str, question: str) -> None:
    assert len(list_kept(text, question)) == text.count(".")


def test_codes_and_labels_have_one_form() -> None:
    assert find_designations("Is KX-4430 in hall B or hall C?") == {
        "kx": {("4430",)},
        "hall": {("b",), ("c",)},
    }
    assert index_designations("Aurora-7, AURORA7, Aurora 07") == {stem_word("aurora"): {("7",)}}
    assert index_designations("KV3-20, kv-3/20") == {"kv": {("3", "20")}}
    # Codes that begin with digits are of the kind of their form.
    found = index_designations("12-AB-34, 17 AB 90, 17-AB-90")
    assert found["0-ab-0"] == {("12-ab-34",), ("17-ab-90",)}


@pytest.mark.parametrize(
    ("text", "question", "missing"),
    [
        (
            "The Aurora 5 boiler was replaced.",
            "When was the Aurora 7 boiler replaced?",
            ["Aurora 7"],
        ),
        ("The Aurora 7 boiler was replaced.", "When was the Aurora 7 boiler replaced?", []),
        # A single other label behind a common noun shows nothing: "the second phase".
        ("In phase 1 the roof was built.", "When does phase 2 start?", []),
        ("In phase 1 and phase 3 it rains.", "When does phase 2 start?", ["phase 2"]),
    ],
)
def test_name_with_another_number_alone_is_missing(
    text: str, question: str, missing: list[str]
) -> None:
    plan = plan_query(question, "en", GuessedLanguageDetector(), LowercaseNameFolder())
    held = index_text_terms([text])
    assert find_missing_terms(held, [text], plan, is_foreign=False) == missing
