"""Sentence boundaries in English and Portuguese."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.sentence_splitter import RuleSentenceSplitter


def split_sentences(text: str) -> list[str]:
    return [text[start:end].strip() for start, end in RuleSentenceSplitter().split(text)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["It costs 3.5 euros.", "That is cheap!", "Is it?", "Yes."],
        ["Dr. Silva met Mrs. Jones at 5 p.m. in Washington.", "They talked."],
        ["O art. 5º da Lei n. 11.788 vale.", "O Sr. João concordou."],
        ["A Profa. Ana chegou às 10h.", "Começou a aula."],
        ["He said “Stop.”", "Nobody did."],
        ["See fig. 3 and J. R. Smith (1999).", "Then stop."],
        ["Version 2.0 is out.", "2.1 follows."],
        ["Wait…", "Really?", "Yes."],
        ["é minúscula. não corta aqui."],
        ["今日は晴れ。", "明日は雨。"],
    ],
)
def test_sentences_split_in_english_and_portuguese(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


def test_blank_lines_and_list_items_end_sentences() -> None:
    assert split_sentences("Heading\n\nText goes on\nhere.\n- one\n- two\n1. three") == [
        "Heading",
        "Text goes on\nhere.",
        "- one",
        "- two",
        "1. three",
    ]


@given(st.text(alphabet="aB .!?\n\"'(é3…。-", max_size=200))
def test_sentence_spans_cover_text_without_gaps(text: str) -> None:
    found = RuleSentenceSplitter().split(text)
    assert "".join(text[start:end] for start, end in found) == text
    assert all(start < end for start, end in found)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("The ore comes from Mine A. The shaft is deep.", 2),
        ("O minério vem da Mina B. Os poços são fundos.", 2),
        ("It closes at 5 p.m. The keys are inside.", 2),
        ("It is made by Brook Inc. In May it moved.", 2),
        ("He met John F. Kennedy. They spoke.", 2),
        ("She is Maria A. Osgood of Hull.", 1),
        ("The case is Dow vs. The Crown.", 1),
        ("~~The fee is 90 euros.~~ The fee is 72 euros.", 2),
        ("The fee is 72 euros. ~~The fee is 90 euros.~~", 2),
    ],
)
def test_stop_behind_label_or_struck_text_ends_sentence(text: str, sentences: int) -> None:
    assert len(RuleSentenceSplitter().split(text)) == sentences
