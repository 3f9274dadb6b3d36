"""Contract of the port `Chunker`, and what the structure strategy adds."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest

from engines.chunk import create_chunker
from engines.parse import markdown
from engines.parse.assembly import assemble_transcript
from engines.parsed_blocks import ParsedBlock, ParsedPart, format_table
from schemas.generations import ChunkConfig
from schemas.ports.engines import Chunker
from schemas.values import ChildChunk, ParentChunk, Transcript

DOCUMENT = UUID(int=17)
SENTENCES = [
    f"Sentence number {i} says that pump {i * 37 % 101} was oiled on day {i}." for i in range(400)
]
PROSE = "\n\n".join(" ".join(SENTENCES[i : i + 6]) for i in range(0, len(SENTENCES), 6))
ROWS = [["part", "price"], *([f"seal {i}", str(i * 13)] for i in range(300))]


@pytest.fixture(params=["structure", "fixed_size"])
def chunker(request: pytest.FixtureRequest) -> Chunker:
    return create_chunker(ChunkConfig(strategy=request.param))


@pytest.fixture
def structure() -> Chunker:
    return create_chunker(ChunkConfig())


def transcript(source: str) -> Transcript:
    return assemble_transcript([markdown.read(source.encode())], pages=None)


def children(parents: list[ParentChunk]) -> list[ChildChunk]:
    return [child for parent in parents for child in parent.children]


def format_grid(rows: list[list[str]]) -> str:
    return format_table(rows)[0]


def check_spans(parsed: Transcript, parents: list[ParentChunk]) -> None:
    for parent in parents:
        assert parent.text == parsed.markdown[parent.char_start : parent.char_end]
        for child in parent.children:
            assert (
                child.text
                == parsed.markdown[child.char_start : child.char_end]
                == child.text.strip()
                != ""
            )
            assert parent.char_start <= child.char_start < child.char_end <= parent.char_end
            assert (child.spans[0].char_start, child.spans[-1].char_end) == (
                child.char_start,
                child.char_end,
            )
            pairs = pairwise(child.spans)
            assert all(one.char_end <= other.char_start for one, other in pairs)


@pytest.mark.parametrize(
    "source",
    [
        PROSE,
        format_grid(ROWS),
        f"# A\n\n{PROSE}\n\n## B\n\n{format_grid(ROWS)}\n\n```python\n{'x = 1' * 2000}\n```",
    ],
)
def test_chunk_text_matches_its_span(chunker: Chunker, source: str) -> None:
    found = transcript(source)
    parents = chunker.chunk(DOCUMENT, "T", found)
    check_spans(found, parents)
    assert [parent.ordinal for parent in parents] == list(range(len(parents)))
    assert [child.ordinal for child in children(parents)] == list(range(len(children(parents))))


def test_empty_text_has_no_chunks(chunker: Chunker) -> None:
    assert chunker.chunk(DOCUMENT, "T", transcript("")) == []


def test_chunk_ids_are_stable_and_unique(chunker: Chunker) -> None:
    found = transcript(f"# A\n\n{PROSE}\n\n# A\n\n{PROSE}")
    once, again = chunker.chunk(DOCUMENT, "T", found), chunker.chunk(DOCUMENT, "T", found)
    ids = [child.id for child in children(once)] + [parent.id for parent in once]
    assert once == again
    assert len(ids) == len(set(ids))
    assert not {child.id for child in children(chunker.chunk(UUID(int=18), "T", found))} & set(ids)


def test_chunk_sizes_stay_within_limits(chunker: Chunker) -> None:
    parents = chunker.chunk(DOCUMENT, None, transcript(PROSE))
    sizes = [child.tokens for child in children(parents)]
    assert max(sizes) <= 456
    assert 248 <= sum(sizes) / len(sizes) <= 380
    assert all(parent.tokens <= 920 for parent in parents)


@pytest.mark.parametrize("source", ["word " * 5000, "x" * 20_000, f"- {'item ' * 3000}"])
def test_text_without_sentence_ends_is_split(chunker: Chunker, source: str) -> None:
    found = transcript(source)
    parents = chunker.chunk(DOCUMENT, None, found)
    check_spans(found, parents)
    assert max(child.tokens for child in children(parents)) <= 456


def test_table_splits_between_rows_and_repeats_header(chunker: Chunker) -> None:
    cut = children(chunker.chunk(DOCUMENT, "Prices", transcript(f"# Parts\n\n{format_grid(ROWS)}")))
    assert len(cut) > 5
    for child in cut:
        lines = [line for line in child.text.split("\n") if line.startswith("|")]
        assert all(line.endswith("|") and line.count("|") == 3 for line in lines)
        assert ("| part | price |" in child.text) != ("| part | price |" in child.prefix)


@pytest.mark.parametrize(
    "row",
    [[str(i) for i in range(20_000)], ["1", "x" * 1_000_000]],
    ids=["many cells", "a long cell"],
)
def test_oversized_table_row_is_split(chunker: Chunker, row: list[str]) -> None:
    found = transcript(format_grid([[f"c{i}" for i in range(len(row))], row]))
    parents = chunker.chunk(DOCUMENT, "T", found)
    check_spans(found, parents)
    assert max(len(child.text) for child in children(parents)) < 5_000


@pytest.mark.parametrize("strategy", ["structure", "fixed_size"])
@pytest.mark.parametrize("before", ["", "| a |\n|---|\n\n"], ids=["alone", "behind a table"])
def test_blank_line_does_not_become_a_chunk(strategy: str, before: str) -> None:
    lines = ["x" * 269, "", "y" * 269, "", "z" * 269]
    found = transcript(f"{before}```\n" + "\n".join(lines) + "\n```")
    parents = create_chunker(
        ChunkConfig(strategy=strategy, child_tokens=40, parent_tokens=100, whole_tokens=40)
    ).chunk(DOCUMENT, "T", found)  # type: ignore[arg-type]
    check_spans(found, parents)
    assert sum(child.text.count("y") for child in children(parents)) == 269


def test_prefix_contains_title_and_heading_path(structure: Chunker) -> None:
    found = transcript(f"# Guide\n\n## Pumps\n\n{PROSE}\n\n### Seals\n\nSeals wear out. {PROSE}")
    parents = structure.chunk(DOCUMENT, "guide", found)
    assert parents[0].section == "Guide > Pumps"
    assert parents[0].children[0].prefix == "Guide > Pumps"
    assert parents[-1].children[-1].prefix == "Guide > Pumps > Seals"
    assert (
        structure.chunk(DOCUMENT, "Handbook", found)[0].children[0].prefix
        == "Handbook > Guide > Pumps"
    )


def test_parent_chunk_stays_within_one_section(structure: Chunker) -> None:
    found = transcript(
        "\n\n".join(
            f"# Section {i}\n\n{' '.join(SENTENCES[i * 20 : i * 20 + 20])}" for i in range(8)
        )
    )
    assert [parent.section for parent in structure.chunk(DOCUMENT, None, found)] == [
        f"Section {i}" for i in range(8)
    ]


def test_short_section_or_document_is_one_chunk(structure: Chunker) -> None:
    short = " ".join(SENTENCES[:8])
    long = transcript(f"# A\n\n{short}\n\n- item\n- item\n\n# B\n\n{PROSE}")
    assert len(structure.chunk(DOCUMENT, None, long)[0].children) == 1
    whole = structure.chunk(
        DOCUMENT, None, transcript("# A\n\nOne.\n\n## B\n\nTwo.\n\n## C\n\nThree.")
    )
    assert [child.text for child in children(whole)] == ["One.\n\n## B\n\nTwo.\n\n## C\n\nThree."]
    assert whole[0].section == "A"


def test_code_block_is_own_chunk_with_language(structure: Chunker) -> None:
    found = transcript("# A\n\nCall it so:\n\n```python\nrun(1)\n```\n\nThat is all.")
    cut = children(structure.chunk(DOCUMENT, None, found))
    assert [(child.kind, child.language) for child in cut] == [
        ("paragraph", None),
        ("code", "python"),
        ("paragraph", None),
    ]


def test_heading_without_text_is_indexed(structure: Chunker) -> None:
    parents = structure.chunk(DOCUMENT, None, transcript(f"{PROSE}\n\n# The end"))
    assert children(parents)[-1].text == "# The end"


@pytest.mark.parametrize("at", [0, 7, 30, 60])
def test_inserted_paragraph_changes_at_most_three_chunks(structure: Chunker, at: int) -> None:
    before = {child.id for child in children(structure.chunk(DOCUMENT, None, transcript(PROSE)))}
    paragraphs = PROSE.split("\n\n")
    paragraphs.insert(
        at,
        "A paragraph that was not there before. It says something new about valves "
        "and nothing about pumps.",
    )
    after = {
        child.id
        for child in children(structure.chunk(DOCUMENT, None, transcript("\n\n".join(paragraphs))))
    }
    assert len(after - before) <= 3


def test_sheet_chunks_have_their_cell_ranges(structure: Chunker) -> None:
    text, end, _ = format_table(ROWS)
    table = ParsedBlock("table", text, header_end=end, sheet="S", cells=f"B3:C{2 + len(ROWS)}")
    found = assemble_transcript([ParsedPart([table])], pages=None)
    for child in children(structure.chunk(DOCUMENT, None, found)):
        first, last = (int(cell[1:]) for cell in (child.spans[0].cells or "").split(":"))
        seals = [
            int(line.split()[2]) for line in child.text.split("\n") if line.startswith("| seal")
        ]
        assert (last, seals[-1]) == (4 + seals[-1], last - 4)
        assert first == (3 if "part" in child.text else 4 + seals[0])


def test_chunks_keep_pages_and_boxes(structure: Chunker) -> None:
    drafts = [
        ParsedBlock("paragraph", SENTENCES[i], page=i // 10 + 1, box=(0.1, 0.1, 0.9, 0.2))
        for i in range(60)
    ]
    parents = structure.chunk(DOCUMENT, None, assemble_transcript([ParsedPart(drafts)], pages=6))
    assert sorted({page for parent in parents for page in parent.pages}) == [1, 2, 3, 4, 5, 6]
    assert all(span.page and span.box for child in children(parents) for span in child.spans)


def test_fixed_size_chunks_overlap_as_configured() -> None:
    chunker = create_chunker(ChunkConfig(strategy="fixed_size", overlap=0.2))
    cut = children(chunker.chunk(DOCUMENT, None, transcript(PROSE)))
    shared = [one.char_end - other.char_start for one, other in pairwise(cut)]
    assert all(
        0.1 * len(child.text) < overlap < 0.3 * len(child.text)
        for child, overlap in zip(cut, shared, strict=False)
    )


def test_strategies_have_different_fingerprints() -> None:
    fixed_size = create_chunker(ChunkConfig(strategy="fixed_size"))
    assert create_chunker(ChunkConfig()).fingerprint != fixed_size.fingerprint


def test_guessed_heading_does_not_extend_to_later_pages(structure: Chunker) -> None:
    """Headings on every page up to the fourth, then none: the fourth's must not name page 19."""
    drafts = [ParsedBlock("heading", "Annual report", level=1, page=1)]
    for page in range(1, 20):
        drafts += [ParsedBlock("heading", f"Part {page}", level=2, page=page)] if page <= 4 else []
        drafts.append(
            ParsedBlock("paragraph", " ".join(SENTENCES[page * 12 : page * 12 + 12]), page=page)
        )
    parents = structure.chunk(DOCUMENT, None, assemble_transcript([ParsedPart(drafts)], pages=19))
    sections = {page: parent.section for parent in parents for page in parent.pages}
    assert sections[3] == "Annual report > Part 3" and sections[6] == "Annual report > Part 4"
    assert {sections[page] for page in range(9, 20)} == {"Annual report"}


def test_long_chapters_keep_their_heading(structure: Chunker) -> None:
    drafts = []
    for page in range(1, 61):
        drafts += (
            [ParsedBlock("heading", f"Chapter {page}", level=1, page=page)]
            if page % 20 == 1
            else []
        )
        drafts.append(
            ParsedBlock("paragraph", " ".join(SENTENCES[page * 6 : page * 6 + 6]), page=page)
        )
    parents = structure.chunk(DOCUMENT, None, assemble_transcript([ParsedPart(drafts)], pages=60))
    assert {parent.section for parent in parents} == {"Chapter 1", "Chapter 21", "Chapter 41"}
