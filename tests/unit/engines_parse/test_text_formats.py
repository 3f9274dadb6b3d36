"""Drafts from text, Markdown, HTML, CSV and workbooks.

JSON is records with fields; subtitles are sentences with speakers and times.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.parse import (
    assembly,
    epub,
    formats,
    html,
    markdown,
    records,
    spreadsheets,
    subtitles,
    text,
)
from engines.parsed_blocks import ParsedBlock
from tests.unit.engines_parse import sample_files
from tests.unit.engines_parse.office_files import write_package
from tests.unit.engines_parse.sample_files import Section, write_file


def read_records(source: str) -> list[str]:
    return [block.text for block in records.read(source.encode()).blocks]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('{"note": "caf\\u00e9", "price": 1.10}', ["- note: café\n- price: 1.10"]),
        ('{"a": {"b": [1, 2], "c": null, "d": true}}', ["- a.b: 1, 2\n- a.c: null\n- a.d: true"]),
        (
            '{"n": 1, "items": [{"sku": "K-1", "p": 2}, {"sku": "K-2", "p": 3}]}',
            ["- n: 1", "items 1: K-1", "- sku: K-1\n- p: 2", "items 2: K-2", "- sku: K-2\n- p: 3"],
        ),
        ('[{"id": "T-1"}, {"id": "T-2"}]',
         ["Record 1: T-1", "- id: T-1", "Record 2: T-2", "- id: T-2"]),
        ('{"id": 1, "a": "x, y"}\n\n{"id": 2, "a": "z"}\n',
         ["Record 1: 1", "- id: 1\n- a: x, y", "Record 2: 2", "- id: 2\n- a: z"]),
        ('{"a": 1, "a": 2}', ["- a: 1\n- a (2): 2"]),
        ('[[1, 2], {"x": [{"y": 3}]}]', ["- [1]: 1, 2\n- [2].x[1].y: 3"]),
        ("not json", ["not json"]),
    ],
)  # fmt: skip
def test_json_is_fields(source: str, expected: list[str]) -> None:
    assert read_records(source) == expected


def test_damaged_line_is_a_warning_not_a_loss_of_the_others() -> None:
    part = records.read(b'{"a": 1}\n{"a": \n{"a": 3}\n')
    assert [notice.code for notice in part.notices] == ["INVALID_JSON"]
    assert part.notices[0].detail.endswith(": 2")
    assert [block.text for block in part.blocks if block.kind == "list"] == ["- a: 1", "- a: 3"]


def test_hostile_nesting_is_read_as_text_or_cut() -> None:
    assert records.read(b"[" * 100_000).notices
    assert records.read(b'{"a":' * 500 + b"1" + b"}" * 500).blocks


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        (None, '{"id": 1, "a": 2}\n{"id": 3, "a": 4}\n{"id": 5, "a": 6}\n', formats.JSON),
        (None, '{\n  "id": 1\n}', formats.JSON),
        ("a.jsonl", '{"id": 1}\n', formats.JSON),
        (None, "[1] Smith, 2020\n[2] Jones, 2021\n", formats.PLAIN),
        (None, "{name}, hello\n", formats.PLAIN),
        ("a.txt", '{"id": 1}\n', formats.PLAIN),
        (None, "WEBVTT\n\n00:01.000 --> 00:02.000\nHi\n", formats.VTT),
        (None, "1\n00:00:01,000 --> 00:00:02,000\nHi\n", formats.SRT),
        (None, "BEGIN:VCALENDAR\nVERSION:2.0\n", formats.CALENDAR),
    ],
)
def test_text_format_is_detected(
    tmp_path: Path, name: str | None, source: str, expected: str
) -> None:
    path = write_file(tmp_path, "file", source.encode())
    assert formats.detect_media_type(path, name, None).media_type == expected


SRT = """1
00:00:01,000 --> 00:00:03,500
The deposit for the hall is

2
00:00:03,600 --> 00:00:06,000
four hundred <i>and</i> fifty euros.

3
00:00:20,000 --> 00:00:22,000
Keys &amp; cards are at desk 12.
"""
VTT = """WEBVTT - talk

NOTE not spoken

STYLE
::cue { color: red }

intro
00:01.000 --> 00:03.000 align:start
<v Duarte>The budget is

00:03.000 --> 00:04.500
closed.

00:05.000 --> 00:06.000
<v.loud Eva Reis>At last.

01:00:00.000 --> 01:00:01.000
<00:01.000>MARTA: Lunch.
"""


def read_subtitles(source: str) -> list[tuple[str, float | None, float | None]]:
    part = subtitles.read(source.encode())
    transcript = assembly.assemble_transcript([part], pages=None)
    return [
        (
            transcript.markdown[block.span.char_start : block.span.char_end],
            block.span.start_s,
            block.span.end_s,
        )
        for block in transcript.blocks
    ]


def test_cues_are_joined_to_sentences_with_times() -> None:
    assert read_subtitles(SRT) == [
        ("The deposit for the hall is four hundred and fifty euros.", 1.0, 6.0),
        ("Keys & cards are at desk 12.", 20.0, 22.0),
    ]


def test_speakers_are_kept_and_notes_left_out() -> None:
    assert read_subtitles(VTT) == [
        ("Duarte: The budget is closed.", 1.0, 4.5),
        ("Eva Reis: At last.", 5.0, 6.0),
        ("MARTA: Lunch.", 3600.0, 3601.0),
    ]


def test_rolling_captions_are_read_once() -> None:
    source = "WEBVTT\n\n00:01.000 --> 00:02.000\nOne line\n\n00:02.000 --> 00:03.000\nOne line\n"
    assert read_subtitles(source) == [("One line", 1.0, 3.0)]


@pytest.mark.parametrize(
    ("source", "paragraphs"),
    [
        pytest.param(
            "1\n00:00:01,000 --> 00:00:02,000\nThe tide\n\nis low.\n\n"
            "2\n00:00:08,000 --> 00:00:09,000\nThe lamp is lit.\n",
            [("The tide is low.", 1.0, 2.0), ("The lamp is lit.", 8.0, 9.0)],
            id="blank line in a cue",
        ),
        pytest.param(
            "1\n00:00:01,000 --> 00:00:02,000\nThe tide is low.\n"
            "2\n00:00:08,000 --> 00:00:09,000\nThe lamp is lit.\n",
            [("The tide is low.", 1.0, 2.0), ("The lamp is lit.", 8.0, 9.0)],
            id="no blank line between cues",
        ),
        pytest.param(
            "1\n00:00:01 --> 00:00:02\nThe tide is low.\n",
            [("The tide is low.", 1.0, 2.0)],
            id="whole seconds",
        ),
        pytest.param(
            "1\n00:00:09,000 --> 00:00:02,000\nThe tide is low.\n",
            [("The tide is low.", 9.0, None)],
            id="end before the start",
        ),
        pytest.param(
            "1\n00:00:08,000 --> 00:00:09,000\nThe lamp is lit.\n\n"
            "2\n00:00:1O,000 --> 00:00:12,000\nThe tide is low.\n",
            [
                ("The lamp is lit.", 8.0, 9.0),
                ("2 00:00:1O,000 --> 00:00:12,000 The tide is low.", None, None),
            ],
            id="damaged times",
        ),
        pytest.param(
            "Only a text.\n\nWithout times.\n",
            [("Only a text.", None, None), ("Without times.", None, None)],
            id="no times",
        ),
        pytest.param(
            "WEBVTT\n\nNOTE a remark\nof two lines\n\nSTYLE\n::cue {}\n\n"
            "intro\n00:01.000 --> 00:02.000 align:start\nThe tide is low.\n\n"
            "NOTE more\n\n00:08.000 --> 00:09.000\nThe lamp is lit.\n",
            [("The tide is low.", 1.0, 2.0), ("The lamp is lit.", 8.0, 9.0)],
            id="comments and names",
        ),
        pytest.param(
            "1\n00:00:01,000 --> 00:00:02,000\nThe deposit is\n\n450\n\n"
            "2\n00:00:08,000 --> 00:00:09,000\nThe lamp is lit.\n",
            [("The deposit is 450", 1.0, 2.0), ("The lamp is lit.", 8.0, 9.0)],
            id="number below a blank line",
        ),
        pytest.param(
            "00:00:01,000 --> 00:00:02,000\nThe deposit is\n450\n\n"
            "00:00:08,000 --> 00:00:09,000\nThe lamp is lit.\n",
            [("The deposit is 450", 1.0, 2.0), ("The lamp is lit.", 8.0, 9.0)],
            id="cues without numbers",
        ),
        pytest.param(
            "1\n\n00:00:01,000 --> 00:00:02,000\nThe tide\n\n"
            "is low.\n00:00:08,000 --> 00:00:09,000\nThe lamp is lit.\n",
            [("The tide is low.", 1.0, 2.0), ("The lamp is lit.", 8.0, 9.0)],
            id="blank line below the number, text above times",
        ),
        pytest.param(
            "1\n00:00:01,000 --> 00:00:02,000 X1:40 Y1:20 The tide is low.\n",
            [("The tide is low.", 1.0, 2.0)],
            id="text beside the times",
        ),
    ],
)
def test_damaged_subtitles_lose_no_text(
    source: str, paragraphs: list[tuple[str, float | None, float | None]]
) -> None:
    assert read_subtitles(source) == paragraphs


def test_book_has_its_title_order_and_notes(tmp_path: Path) -> None:
    opf = (
        "<dc:title>Keeper handbook</dc:title><dc:language>pt-PT</dc:language><manifest>"
        '<item id="b" href="b%20x.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="a" href="a%20x.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="c" href="lost.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/></spine>'
    )
    first = "<h1>One</h1><p>4.2<sup>1</sup> km, 10<sup>6</sup></p>"
    second = '<p>Two</p><aside epub:type="footnote">1 Rough.</aside>'
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<rootfile full-path="O/c.opf"/>',
        "O/c.opf": opf,
        "O/a x.xhtml": f"<html><body>{first}</body></html>",
        "O/b x.xhtml": f"<html><body>{second}</body></html>",
    }
    path = write_package(tmp_path / "b.epub", parts)
    assert formats.detect_media_type(path, None, None).media_type == "application/epub+zip"
    part = epub.read(path)
    assert (part.title, part.language) == ("Keeper handbook", "pt")
    assert [block.text for block in part.blocks] == ["One", "4.2[^1] km, 10⁶", "Two", "1 Rough."]
    assert [notice.code for notice in part.notices] == ["MISSING_PART"]


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


# Text is decoded as browsers decode it, and damage is reported.

RUSSIAN = "Арендная плата за зал составляет 450 евро в месяц. Оплата до 10 марта."
SAMPLES = {
    "gb18030": "合同的租金是每月四百五十欧元。请在三月十日之前付款。",
    "koi8-r": RUSSIAN,
    "cp1251": RUSSIAN,
    "shift_jis": "会場の使用料は月四百五十ユーロです。三月十日までにお支払いください。",
    "euc-jp": "会場の使用料は月四百五十ユーロです。三月十日までにお支払いください。",
    "big5": "會場的租金是每月四百五十歐元。請在三月十日之前付款。",
    "euc-kr": "회의실 임대료는 한 달에 450유로입니다. 3월 10일까지 지불하십시오.",
    "cp1253": "Το ενοίκιο της αίθουσας είναι 450 ευρώ τον μήνα.",
    "cp1254": "Salonun aylık kirası 450 lira. Ödeme 10 Mart'a kadar yapılmalıdır; şöyle.",
}


@pytest.mark.parametrize("encoding", SAMPLES)
def test_undeclared_encoding_is_detected_with_warning(encoding: str) -> None:
    decoded = text.decode_text(SAMPLES[encoding].encode(encoding))
    assert decoded.text == SAMPLES[encoding]
    assert [notice.code for notice in decoded.notices] == ["CHARSET_GUESSED"]


@pytest.mark.parametrize("words", ["O preço é 40 € – “líquido”.", "Preis 40 € für Größe", "ação"])
def test_western_text_needs_no_warning(words: str) -> None:
    assert text.decode_text(words.encode("cp1252")) == text.DecodedText(words, "cp1252")


@pytest.mark.parametrize(
    ("label", "encoding", "words"),
    [
        ("iso-8859-1", "cp1252", "40 € “net”"),
        ("US-ASCII", "cp1252", "the ’20s…"),
        ("latin1", "cp1252", "œuvre"),
        ("gb2312", "gb18030", "租金 € 镕"),
        ("ks_c_5601-1987", "cp949", "회의실 뷁"),
        ("x-sjis", "cp932", "会場①"),
        ("iso-2022-jp", "iso2022_jp", "会場"),
        ("windows-1251", "cp1251", "Цена"),
        ("iso-8859-9", "cp1254", "€ şey"),
    ],
)
def test_label_names_the_encoding_of_browsers(label: str, encoding: str, words: str) -> None:
    page = f"<meta charset='{label}'><p>{words}</p>".encode(encoding)
    assert html.read(page).blocks[0].text == words


def test_transport_charset_precedes_that_of_the_page() -> None:
    page = "<meta charset=windows-1252><p>会場の使用料</p>".encode("shift_jis")
    with text.declare_charset("text/html; charset=Shift_JIS"):
        assert html.read(page).blocks[0].text == "会場の使用料"
        assert markdown.read("会場".encode("shift_jis")).blocks[0].text == "会場"
        assert "会場" in spreadsheets.read_csv("a,b\n会場,1\n".encode("shift_jis")).blocks[-1].text
        assert text.decode_text("\ufeff€".encode("utf-16")).text == "€"


def test_wrong_label_does_not_break_utf8() -> None:
    assert text.decode_text("ação €".encode(), "iso-8859-1").text == "ação €"
    assert text.decode_text(b"plain", "utf-16").text == "plain"
    assert text.decode_text("preço".encode("cp1252"), "utf-8").text == "preço"


def test_damaged_bytes_are_marked_not_removed() -> None:
    damaged = text.decode_text(("ação " * 20).encode() + b"\xe3 end")
    assert damaged.text.endswith("ação \ufffd end")
    assert [notice.code for notice in damaged.notices] == ["UNDECODABLE_BYTES"]
    unmapped = text.decode_text(b"a \x93b\xe9", "iso-8859-15")
    assert unmapped.text == "a \ufffdbé"
    assert [notice.code for notice in unmapped.notices] == ["UNDECODABLE_BYTES"]
