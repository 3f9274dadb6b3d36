from __future__ import annotations

import time
from uuid import uuid4

import pytest

from engines.chunk import create_chunker
from engines.repetition import count_repeated_characters, find_period
from processors.transcribe import _collect_notices
from schemas.generations import ChunkConfig
from schemas.values import Block, Span, Transcript


def make_transcript(markdown: str) -> Transcript:
    return Transcript(
        markdown=markdown,
        blocks=[Block(kind="paragraph", span=Span(char_start=0, char_end=len(markdown)))],
    )


@pytest.mark.parametrize("token", [".", "a,", "word ", "A-", "| a ", "x. "])
@pytest.mark.parametrize("strategy", ["structure", "fixed_size"])
def test_repeated_token_is_indexed_once(token: str, strategy: str) -> None:
    text = (token * 500_000)[:500_000].strip()
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
