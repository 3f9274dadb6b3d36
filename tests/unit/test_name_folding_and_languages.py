"""Folding of names, and languages of texts."""

from __future__ import annotations

import time
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.chunk import create_chunker
from engines.chunk.chunk_builder import count_repeated_characters, find_period
from engines.language import FastTextLanguageDetector, find_sentences, fold_name
from processors.transcribe import _collect_notices
from schemas.generations import ChunkConfig
from schemas.values import Block, Span, Transcript

DETECTOR = FastTextLanguageDetector()


@pytest.mark.parametrize(
    ("spellings", "key"),
    [
        (["Acme, S.A.", "ACME  SA", "Acme S/A", "acme", "Acme Ltda."], "acme"),
        (["José da Silva", "JOSE DA SILVA", "José  da\nSilva"], "jose da silva"),
        (["U.S. Bank", "US Bank"], "us bank"),
        (["Petróleo Brasileiro S.A.", "Petroleo Brasileiro"], "petroleo brasileiro"),
        (["Straße", "STRASSE"], "strasse"),
        (["Co"], "co"),
    ],
)
def test_spelling_variants_fold_to_one_key(spellings: list[str], key: str) -> None:
    assert {fold_name(spelling) for spelling in spellings} == {key}


@given(st.text(max_size=60))
def test_name_folding_is_idempotent(name: str) -> None:
    assert fold_name(fold_name(name)) == fold_name(name)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Qual é o prazo?", "pt"),
        ("What is the price?", "en"),
        ("¿Dónde está la biblioteca?", "es"),
        ("Wer hat das geschrieben?", "de"),
        ("o contrato", "pt"),
        ("O fornecedor entrega as peças em até trinta dias depois do pedido.", "pt"),
        ("The supplier delivers the parts within thirty days of the order.", "en"),
        ("Le fournisseur livre les pièces dans les trente jours suivant la commande.", "fr"),
        ("THE SUPPLIER DELIVERS THE PARTS WITHIN THIRTY DAYS OF THE ORDER", "en"),
    ],
)
def test_language_of_questions_and_sentences_is_detected(text: str, language: str) -> None:
    assert DETECTOR.detect(text) == language


@pytest.mark.parametrize(
    "text", ["", "12345", "SKF 6204-2RS", "???", "a@b.example https://example.com/x"]
)
def test_text_without_words_has_no_language(text: str) -> None:
    assert DETECTOR.detect(text) is None


# Sentence boundaries in English and Portuguese.


def split_sentences(text: str) -> list[str]:
    return [text[start:end].strip() for start, end in find_sentences(text)]


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
    found = find_sentences(text)
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
    assert len(find_sentences(text)) == sentences


def make_transcript(markdown: str) -> Transcript:
    return Transcript(
        markdown=markdown,
        blocks=[Block(kind="paragraph", span=Span(char_start=0, char_end=len(markdown)))],
    )


@pytest.mark.parametrize("token", [".", "a,", "word ", "A-", "| a ", "x. "])
@pytest.mark.parametrize("strategy", ["structure", "fixed_size"])
def test_repeated_token_is_indexed_once(token: str, strategy: str) -> None:
    text = (token * 200_000)[:200_000].strip()
    parents = create_chunker(ChunkConfig(strategy=strategy)).chunk(
        uuid4(), "a", make_transcript(text)
    )  # type: ignore[arg-type]
    assert 1 <= sum(len(parent.children) for parent in parents) <= 4
    assert all(parent.children for parent in parents)
    assert [notice.code for notice in _collect_notices(make_transcript(text))] == ["REPEATED_TEXT"]


def test_text_around_repetition_is_kept() -> None:
    text = f"The first sentence is here.\n\n{'a,' * 100_000}\n\nThe last sentence is there."
    ends, blocks = 0, []
    for part in text.split("\n\n"):
        blocks.append(
            Block(kind="paragraph", span=Span(char_start=ends, char_end=ends + len(part)))
        )
        ends += len(part) + 2
    parents = create_chunker(ChunkConfig()).chunk(
        uuid4(), "a", Transcript(markdown=text, blocks=blocks)
    )
    chunk_text = " ".join(child.text for parent in parents for child in parent.children)
    assert "first sentence" in chunk_text
    assert "last sentence" in chunk_text
    assert len(chunk_text) < 10_000


def test_ordinary_text_is_not_repetition() -> None:
    text = "".join(
        f"Sentence {number} of a long text is not like the one before it. "
        for number in range(5_000)
    )
    assert not count_repeated_characters(text)
    assert not _collect_notices(make_transcript(text))
    assert find_period("") is None


def test_repetition_is_counted_in_linear_time() -> None:
    started = time.thread_time()
    for text in (
        "." * 4_000_000,
        "a," * 2_000_000,
        ("." * 63 + "x") * 62_500,
        ("." * 4095 + "x") * 1_000,
    ):
        count_repeated_characters(text)
    assert time.thread_time() - started < 2
