"""The questions that refusal is measured with: what they say of their documents holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.refusal import auc
from benchmarks.refusal_set import documents, questions
from retrieval.words import words

SOURCES = Path(__file__).parents[2] / "samples" / "source"


def text_of(path: Path) -> str:
    """Of a made sample its source: the words are the same, and no OCR is needed to read them."""
    source = SOURCES / f"{path.stem}.md"
    return " ".join((source if source.exists() else path).read_text(encoding="utf-8").split())


def test_every_answer_stands_in_its_document() -> None:
    texts = {path.name: text_of(path) for path in documents()}
    wrong = [question.text for question in questions() if question.answered and not any(said in texts[question.document] for said in question.says)]
    assert wrong == [] and all(question.says for question in questions() if question.answered)


def test_a_document_belongs_to_one_split_and_every_document_is_asked_about() -> None:
    splits = Counter(document for document, _ in {(question.document, question.split) for question in questions()})
    assert set(splits) == {path.name for path in documents()} and set(splits.values()) == {1}


def test_answered_questions_and_near_misses_are_many_and_of_both_languages_in_each_split() -> None:
    counts = Counter((question.split, question.answered, question.language) for question in questions())
    assert len(counts) == 8 and min(counts.values()) >= 20


def test_no_question_is_asked_twice() -> None:
    asked = Counter(" ".join(words(question.text)) for question in questions())
    assert [text for text, count in asked.items() if count > 1] == []


def test_the_area_under_the_curve_is_the_chance_that_an_answered_question_scores_higher() -> None:
    assert auc([0.9, 0.8], [0.1, 0.2]) == 1.0 and auc([0.1], [0.9]) == 0.0
    assert auc([0.5, 0.9], [0.5, 0.1]) == 0.875 and auc([], [0.5]) is None
