"""Drafts from text, Markdown, HTML, CSV and workbooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.parse import html, markdown, spreadsheets, text
from engines.parsed_blocks import ParsedBlock
from tests.unit.engines_parse import sample_files
from tests.unit.engines_parse.sample_files import Section, write_file


def list_kinds(drafts: list[ParsedBlock]) -> list[str]:
    return [draft.kind for draft in drafts]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
def test_text_encoding_is_detected(encoding: str) -> None:
    assert (
        text.read("A coação é ilícita – não há dúvida.".encode(encoding)).blocks[0].text
        == "A coação é ilícita – não há dúvida."
    )


def test_nul_bytes_are_removed_with_notice() -> None:
    piece = text.read(b"before\x00after")
    assert piece.blocks[0].text == "beforeafter"
    assert [notice.code for notice in piece.notices] == ["CONTROL_CHARACTERS_REMOVED"]


def test_bytes_with_many_nuls_are_not_text() -> None:
    assert not text.is_text(b"a\x00\x00b\x00\x00c\x00\x00")


def test_plain_text_splits_at_blank_lines() -> None:
    assert [draft.text for draft in text.read(b"one\ntwo\r\n\r\n  \n three\n").blocks] == [
        "one\ntwo",
        " three",
    ]


def test_markdown_blocks_keep_source_and_front_matter() -> None:
    source = (
        "---\ntitle: Given\nlang: pt\n---\nSetext\n======\n\nSome *words*.\n\n- a\n  - b\n\n"
        "```python\nprint(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n$$x = 1$$\n"
    )
    piece = markdown.read(source.encode())
    assert (piece.title, piece.language) == ("Given", "pt")
    assert list_kinds(piece.blocks) == ["heading", "paragraph", "list", "code", "table", "formula"]
    assert [draft.text for draft in piece.blocks[:3]] == ["Setext", "Some *words*.", "- a\n  - b"]
    assert piece.blocks[3].language == "python"
    table = piece.blocks[4]
    assert table.text[: table.header_end] == "| a | b |\n|---|---|"


def test_html_in_markdown_becomes_text() -> None:
    assert [
        draft.text for draft in markdown.read(b"<div>\n<p>inner <b>words</b></p>\n</div>\n").blocks
    ] == ["inner words"]


def test_html_keeps_main_content_and_nearest_element_ids() -> None:
    piece = html.read(
        b"<html lang='pt-BR'><head><title>T</title>"
        b"<link rel=canonical href='https://example.org/x'></head><body><nav><a>Home</a></nav>"
        b"<main id=m><h1>One</h1><p>first<p id=p2>second <a href=x>link</a></p>"
        b"<script>no()</script><div hidden>no</div></main><footer>no</footer></body></html>"
    )
    assert [(draft.kind, draft.text, draft.element) for draft in piece.blocks] == [
        ("heading", "One", "m"),
        ("paragraph", "first", "m"),
        ("paragraph", "second link", "p2"),
    ]
    assert (piece.title, piece.language) == ("One", "pt")
    assert [notice.code for notice in piece.notices] == ["HIDDEN_TEXT", "CANONICAL_URL"]
    assert piece.notices[1].detail == "https://example.org/x"


def test_spanned_html_cell_is_repeated_in_each_position() -> None:
    piece = html.read(
        b"<table><tr><th colspan=2>a|b<th>c<tr><td rowspan=2>1<td>2<td>3<tr><td>4<td>5</table>"
    )
    assert (
        piece.blocks[0].text
        == "| a\\|b | a\\|b | c |\n| --- | --- | --- |\n| 1 | 2 | 3 |\n| 1 | 4 | 5 |"
    )


def test_html_code_keeps_lines_and_language() -> None:
    draft = html.read(b'<pre><code class="language-sql">select 1\n  from t</code></pre>').blocks[0]
    assert (draft.kind, draft.language, draft.text) == (
        "code",
        "sql",
        "```sql\nselect 1\n  from t\n```",
    )


def test_nested_html_lists_are_indented() -> None:
    assert html.read(b"<ol><li>a<ul><li>b</ul><li>c</ol>").blocks[0].text == "1. a\n   - b\n2. c"


def test_malformed_html_never_fails() -> None:
    assert html.read(
        b"<table><tr><td>a<table><tr><td>b</p></div></table>" + b"<div>" * 3000 + b"deep"
    ).blocks


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_csv_delimiter_and_encoding_are_detected(delimiter: str, encoding: str) -> None:
    rows = [["ação", "preço"], ["a, b; c", "1"], ["d", "2"]]
    data = "\n".join(delimiter.join(f'"{cell}"' for cell in row) for row in rows).encode(encoding)
    table = spreadsheets.read_csv(data).blocks[-1]
    assert table.text.split("\n")[0] == "| ação | preço |"
    assert table.cells == "A1:B3"


def test_worksheet_has_heading_summary_and_cell_ranges(tmp_path: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Prices"
    sheet["B2"] = "Price list"
    for i, row in enumerate([["part", "price"], ["seal", 12.5], ["pump", 300]]):
        sheet.cell(4 + i, 2, row[0])
        sheet.cell(4 + i, 3, row[1])
    book.save(tmp_path / "x.xlsx")
    drafts = spreadsheets.read_workbook(tmp_path / "x.xlsx").blocks
    assert [(draft.kind, draft.cells) for draft in drafts] == [
        ("heading", None),
        ("summary", "B2:C6"),
        ("paragraph", "B2"),
        ("table", "B4:C6"),
    ]
    assert drafts[1].text == "<!-- Sheet Prices: 3 rows, 2 columns. Columns: part, price. -->"
    assert drafts[3].text.split("\n")[2:] == ["| seal | 12.5 |", "| pump | 300 |"]
    assert all(draft.sheet == "Prices" for draft in drafts)


def test_adjacent_tables_on_a_sheet_are_separate() -> None:
    data = b"a,b,,c,d\n1,2,,3,4\n5,6,,7,8\n"
    assert [
        draft.cells for draft in spreadsheets.read_csv(data).blocks if draft.kind == "table"
    ] == ["A1:B3", "D1:E3"]


def test_truncated_workbook_is_reported_corrupt(tmp_path: Path) -> None:
    from schemas.errors import UnreadableDocument

    path = write_file(
        tmp_path, "x.xlsx", sample_files.render_xlsx([Section("a", rows=[["b", "c"]])])[:2000]
    )
    with pytest.raises(UnreadableDocument) as caught:
        spreadsheets.read_workbook(path)
    assert caught.value.code == "CORRUPT_DOCUMENT"
