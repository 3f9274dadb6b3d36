"""The person whom a question names as a reference is never its answer."""

from __future__ import annotations

import pytest

from engines.sentence_splitter import RuleSentenceSplitter
from retrieval.answering.row_ranking import demote_named_reference
from retrieval.answering.succession import find_reference, lacks_other_person
from retrieval.ranking.quote_candidates import extract_quote_candidates
from tests.unit.retrieval_memory_index import make_contexts

CHAIRS = (
    "The club was founded in 1961. Tomas Reis was chair from 1998 to 2009. "
    "Ines Falk was chair from 2009 to 2016. Since 2016 Per Lund has been chair."
)
CADEIRAS = (
    "Rui Costa presidiu ao clube de 1998 a 2009. Ana Lima presidiu ao clube de 2009 a 2016. "
    "Desde 2016 preside Eva Reis."
)


@pytest.mark.parametrize(
    ("text", "question", "kept"),
    [
        (CHAIRS, "Who was chair before Ines Falk?", ["1961", "Tomas Reis"]),
        (CHAIRS, "Who was chair after Ines Falk?", ["1961", "Per Lund"]),
        (CHAIRS, "Who preceded Ines Falk as chair?", ["1961", "Tomas Reis"]),
        (CHAIRS, "Who succeeded Tomas Reis?", ["1961", "Ines Falk", "Per Lund"]),
        (CADEIRAS, "Quem presidiu ao clube antes de Ana Lima?", ["Rui Costa"]),
        (CADEIRAS, "Quem presidiu ao clube depois de Ana Lima?", ["Eva Reis"]),
        (
            "Otto Brandt leitete das Werk bis 1990. Karla Voss leitete das Werk von 1990 bis 2001.",
            "Wer leitete das Werk vor Karla Voss?",
            ["Otto Brandt"],
        ),
        (
            "Jean Petit dirigea le port de 1950 à 1960. Luc Morel dirigea le port dès 1960.",
            "Qui dirigea le port avant Luc Morel ?",
            ["Jean Petit"],
        ),
        # One sentence names both.
        (
            "Ines Falk took over from Tomas Reis in 2009. Ines Falk lives in Bergen.",
            "Who was chair before Ines Falk?",
            ["took over"],
        ),
        # Neither a person nor a reference.
        (CHAIRS, "When did Ines Falk become chair?", ["1961", "Reis", "Falk", "Lund"]),
        (CHAIRS, "Who was chair before 2009?", ["1961", "Reis", "Falk", "Lund"]),
    ],
)
def test_sentences_about_the_reference_are_last(text: str, question: str, kept: list[str]) -> None:
    candidates = extract_quote_candidates(make_contexts(text), RuleSentenceSplitter(), question)
    scores = demote_named_reference(candidates, question, [1.0] * len(candidates))
    quoted = [item.text for item, score in zip(candidates, scores, strict=True) if score > 0]
    assert len(quoted) == len(kept)
    assert all(part in sentence for part, sentence in zip(kept, quoted, strict=True))


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("Ines Falk was chair from 2009 to 2016 and lives in Bergen.", True),
        ("The society has 340 members and a library.", True),
        ("Ines Falk took over from Reis.", False),
        ("| Chair: Tomas Reis; Until: 2009 |", False),
    ],
)
def test_without_another_person_there_is_no_answer(text: str, lacks: bool) -> None:
    question = "Who was chair before Ines Falk?"
    found = lacks_other_person([text], question)
    assert (found is not None) == lacks
    assert lacks_other_person([text], "Who was chair in 2009?") is None


def test_reference_has_its_words() -> None:
    reference = find_reference("Quem dirigia o porto antes de Ana Lima?")
    assert reference is not None
    assert (reference.phrase, reference.is_before) == ("antes de Ana Lima", True)
