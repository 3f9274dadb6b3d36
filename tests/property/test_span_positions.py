"""Spans are exact in every format, tables break between rows, blocks are in order."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.chunk import create_chunker
from engines.parse import sandbox_jobs
from engines.parse.assembly import assemble_transcript
from engines.parsed_blocks import ParsedPart
from schemas.generations import ChunkConfig
from schemas.values import ChildChunk, ParentChunk, Transcript
from tests.support.repetitions import count_examples
from tests.unit.engines_parse.sample_files import RENDERERS, Section

LETTERS = "abcdefgXYZ áçõ12,.|#*<>&-\"'"
WORDS = (
    st.text(LETTERS, min_size=1, max_size=30)
    .map(lambda text: f"w{text.strip()}")
    .map(lambda text: " ".join(text.split()))
)
PARAGRAPHS = st.lists(WORDS, min_size=1, max_size=40).map(" ".join)
ROWS = st.integers(2, 4).flatmap(
    lambda width: st.lists(st.lists(WORDS, min_size=width, max_size=width), min_size=2, max_size=30)
)
PARTS = st.lists(
    st.builds(Section, WORDS, st.lists(PARAGRAPHS, max_size=4), st.one_of(st.just([]), ROWS)),
    min_size=1,
    max_size=4,
)
DOCUMENT = UUID(int=5)


def parse_document(kind: str, data: bytes) -> Transcript:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes"
        path.write_bytes(data)
        plan = json.loads(sandbox_jobs.plan_document(str(path), f"a.{kind}", None, 100))
        pieces = [
            ParsedPart.decode(sandbox_jobs.read_part(str(path), plan["media_type"], part, 10**6))
            for part in plan["parts"]
        ]
    return assemble_transcript(pieces, pages=plan["pages"])


@pytest.mark.drawn
@pytest.mark.parametrize("strategy", ["structure", "fixed_size"])
@pytest.mark.parametrize("kind", RENDERERS)
def test_spans_match_text_in_every_format(kind: str, strategy: str) -> None:
    chunker = create_chunker(
        ChunkConfig(
            strategy=strategy, child_tokens=40, parent_tokens=120, whole_tokens=50, overlap=0.1
        )
    )  # type: ignore[arg-type]

    @settings(
        max_examples=count_examples(60),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(PARTS)
    def holds(parts: list[Section]) -> None:
        found = parse_document(kind, RENDERERS[kind](parts))
        check_blocks(found)
        check_chunks(found, chunker.chunk(DOCUMENT, "Title", found))

    holds()


def check_blocks(transcript: Transcript) -> None:
    end = 0
    for block in transcript.blocks:
        assert end <= block.span.char_start < block.span.char_end <= len(transcript.markdown)
        assert (
            block.header_end is None
            or block.span.char_start < block.header_end <= block.span.char_end
        )
        if block.span.box:
            x0, y0, x1, y1 = block.span.box
            assert 0 <= x0 <= x1 <= 1 and 0 <= y0 <= y1 <= 1
        end = block.span.char_end


def check_chunks(transcript: Transcript, parents: list[ParentChunk]) -> None:
    ids = [child.id for parent in parents for child in parent.children] + [
        parent.id for parent in parents
    ]
    assert len(ids) == len(set(ids))
    for parent in parents:
        assert parent.text == transcript.markdown[parent.char_start : parent.char_end]
        for child in parent.children:
            assert parent.char_start <= child.char_start < child.char_end <= parent.char_end
            check_child(transcript, child)
    check_coverage(transcript, parents)


def check_child(transcript: Transcript, child: ChildChunk) -> None:
    assert child.text == transcript.markdown[child.char_start : child.char_end]
    assert (child.spans[0].char_start, child.spans[-1].char_end) == (
        child.char_start,
        child.char_end,
    )
    for span in child.spans:
        block = next(
            block
            for block in transcript.blocks
            if block.span.char_start <= span.char_start < block.span.char_end
        )
        assert span.char_end <= block.span.char_end
        assert (span.page, span.box, span.element, span.sheet) == (
            block.span.page,
            block.span.box,
            block.span.element,
            block.span.sheet,
        )
        if block.kind == "table":
            text = transcript.markdown[span.char_start : span.char_end]
            columns = count_unescaped_pipes(
                transcript.markdown[block.span.char_start :].split("\n", 1)[0]
            )
            assert all(
                line.startswith("|")
                and line.endswith("|")
                and count_unescaped_pipes(line) == columns
                for line in text.split("\n")
            )
            assert (
                span.char_start == block.span.char_start
                or span is not child.spans[0]
                or (header := get_first_header(transcript, block.span.char_start)) in child.prefix
                # A header of empty cells names no column.
                or not header.strip("| ")
            )


def count_unescaped_pipes(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line))


def get_first_header(transcript: Transcript, start: int) -> str:
    return transcript.markdown[start:].split("\n", 1)[0][:800]


def check_coverage(transcript: Transcript, parents: list[ParentChunk]) -> None:
    """Check that chunks cover all text but headings."""
    covered = sorted(
        (child.char_start, child.char_end) for parent in parents for child in parent.children
    )
    for block in transcript.blocks:
        if block.kind == "heading":
            continue
        offset = block.span.char_start
        for start, end in covered:
            if start <= offset < end:
                offset = end
            while offset < block.span.char_end and transcript.markdown[offset].isspace():
                offset += 1
        assert offset >= block.span.char_end, (
            f"from {offset} on, {transcript.markdown[offset : block.span.char_end][:80]!r} is "
            "in no chunk"
        )
