"""The questions that refusal is measured with: their documents contain the stated answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.refusal import compute_auc
from benchmarks.refusal_set import list_documents, load_questions
from retrieval.question.words import split_words

SOURCES = Path(__file__).parents[2] / "samples" / "source"


def read_source_text(path: Path) -> str:
    """Read the source of a sample: it has the same words and needs no OCR."""
    source = SOURCES / f"{path.stem}.md"
    return " ".join((source if source.exists() else path).read_text(encoding="utf-8").split())


def test_every_answer_occurs_in_its_document() -> None:
    texts = {path.name: read_source_text(path) for path in list_documents()}
    wrong = [
        question.text
        for question in load_questions()
        if question.is_answerable
        and not any(quote in texts[question.document] for quote in question.expected_quotes)
    ]
    assert wrong == [] and all(
        question.expected_quotes for question in load_questions() if question.is_answerable
    )


def test_every_document_is_in_exactly_one_split() -> None:
    splits = Counter(
        document
        for document, _ in {(question.document, question.split) for question in load_questions()}
    )
    assert set(splits) == {path.name for path in list_documents()} and set(splits.values()) == {1}


def test_splits_cover_both_languages_and_answerability() -> None:
    counts = Counter(
        (question.split, question.is_answerable, question.language) for question in load_questions()
    )
    assert len(counts) == 8 and min(counts.values()) >= 20


def test_questions_are_unique() -> None:
    question_counts = Counter(" ".join(split_words(question.text)) for question in load_questions())
    assert [text for text, count in question_counts.items() if count > 1] == []


def test_auc_is_probability_of_correct_ranking() -> None:
    assert compute_auc([0.9, 0.8], [0.1, 0.2]) == 1.0 and compute_auc([0.1], [0.9]) == 0.0
    assert compute_auc([0.5, 0.9], [0.5, 0.1]) == 0.875 and compute_auc([], [0.5]) is None
