"""Workbooks of every format are read as a person sees them."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from datetime import datetime, time, timedelta
from pathlib import Path

import openpyxl
import pytest
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.comments import Comment
from openpyxl.styles import Color, Font, PatternFill

from engines.chunk.structure import StructureChunker
from engines.parse.assembly import assemble_transcript
from engines.parse.notices import keep_hidden_text
from engines.parse.spreadsheets import read_workbook
from engines.parsed_blocks import ParsedPart
from schemas.errors import UnreadableDocument
from schemas.generations import ChunkConfig
from schemas.ids import content_id
from schemas.values import Span
from tests.unit.engines_parse.office_files import (
    join_text,
    list_table_lines,
    list_warnings,
    make_xlsb,
    make_xlsb_record,
    write_odf,
    write_xlsb,
)

Book = openpyxl.Workbook


def make_book(*rows: Iterable[object], title: str = "Rates") -> Book:
    book = Book()
    book.active.title = title
    for row in rows:
        book.active.append(list(row))
    return book


def read_book(folder: Path, book: Book) -> ParsedPart:
    book.save(folder / "book.xlsx")
    return read_workbook(folder / "book.xlsx")


GROUPED = [
    ["Region", "2024", None, "2025", None],
    [None, "Q1", "Q2", "Q1", "Q2"],
    ["Norte", 11, 12, 13, 14],
    ["Sul", 21, 22, 23, 24],
]
GROUPED_LINES = [
    "| Region | 2024 Q1 | 2024 Q2 | 2025 Q1 | 2025 Q2 |",
    "| Norte | 11 | 12 | 13 | 14 |",
    "| Sul | 21 | 22 | 23 | 24 |",
]


@pytest.mark.parametrize("merged", [("A1:A2", "B1:C1", "D1:E1"), ("B1:C1", "D1:E1"), ()])
def test_header_rows_are_joined_by_column(tmp_path: Path, merged: tuple[str, ...]) -> None:
    book = make_book(*GROUPED)
    for reference in merged:
        book.active.merge_cells(reference)
    assert list_table_lines(read_book(tmp_path, book)) == GROUPED_LINES


def test_three_header_rows_are_joined(tmp_path: Path) -> None:
    book = make_book(
        ["Site", "Output", None, None, None],
        [None, "Day", None, "Night", None],
        [None, "Min", "Max", "Min", "Max"],
        ["Elvas", 1, 2, 3, 4],
        ["Moura", 5, 6, 7, 8],
    )
    for reference in ("A1:A3", "B1:E1", "B2:C2", "D2:E2"):
        book.active.merge_cells(reference)
    assert list_table_lines(read_book(tmp_path, book))[:2] == [
        "| Site | Output Day Min | Output Day Max | Output Night Min | Output Night Max |",
        "| Elvas | 1 | 2 | 3 | 4 |",
    ]


def test_merged_cells_of_body_are_filled(tmp_path: Path) -> None:
    book = make_book(["Pier", "Berth", "Depth"], ["A", 1, 4.5], [None, 2, 5], ["B", 3, 6])
    book.active.merge_cells("A2:A3")
    assert list_table_lines(read_book(tmp_path, book))[2] == "| A | 2 | 5 |"


def test_merged_title_stays_one_line(tmp_path: Path) -> None:
    book = make_book(["Rates of 2025", None, None], ["Pier", "Berth", "Depth"], ["A", 1, 4.5])
    book.active.merge_cells("A1:C1")
    part = read_book(tmp_path, book)
    assert [block.text for block in part.blocks if block.kind == "paragraph"] == ["Rates of 2025"]
    assert list_table_lines(part)[0] == "| Pier | Berth | Depth |"


@pytest.mark.parametrize(
    "rows",
    [
        [["Invoice number", "INV-2291"], ["Customer", "Ana Lopes"], ["Total", "1,476.00"]],
        [["Name:", "Gaivota"], ["Port:", "Faro"], ["Owner:", "Rui"]],
    ],
)
def test_label_value_list_has_no_header(tmp_path: Path, rows: list[list[str]]) -> None:
    lines = list_table_lines(read_book(tmp_path, make_book(*rows)))
    assert lines == [f"| {label} | {value} |" for label, value in rows]


def make_book_with_hidden_parts() -> Book:
    book = make_book(["Product", "Price", "Margin"], ["Lamp", 30, 61], ["Desk", 250, 44])
    book.active.row_dimensions[3].hidden = True
    book.active.column_dimensions["C"].hidden = True
    for title, state in (("Old", "hidden"), ("Secret", "veryHidden")):
        sheet = book.create_sheet(title)
        sheet.append(["Password", "zebra-9"])
        sheet.sheet_state = state
    return book


def test_hidden_parts_are_left_out_and_named(tmp_path: Path) -> None:
    part = read_book(tmp_path, make_book_with_hidden_parts())
    assert list_table_lines(part) == ["| Product | Price |", "| Lamp | 30 |"]
    for name in ("row 3", "column C", "sheet Old", "sheet Secret"):
        assert name in list_warnings(part)
    assert "zebra" not in "".join(block.text for block in part.blocks)


@pytest.mark.parametrize("size", ["0", "0.0"])
def test_row_and_column_without_size_are_hidden(tmp_path: Path, size: str) -> None:
    book = make_book(["Product", "Price", "Margin"], ["Lamp", 30, 61], ["Desk", 250, 44])
    book.active.row_dimensions[3].height = book.active.column_dimensions["C"].width = 77
    book.save(tmp_path / "sized.xlsx")
    with (
        zipfile.ZipFile(tmp_path / "sized.xlsx") as source,
        zipfile.ZipFile(tmp_path / "a.xlsx", "w") as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b'"77"', f'"{size}"'.encode()))
    part = read_workbook(tmp_path / "a.xlsx")
    assert list_table_lines(part) == ["| Product | Price |", "| Lamp | 30 |"]


def test_hidden_parts_are_kept_on_request(tmp_path: Path) -> None:
    with keep_hidden_text(True):
        part = read_book(tmp_path, make_book_with_hidden_parts())
    text = "".join(block.text for block in part.blocks)
    assert "zebra-9" in text and "44" in text and "cannot see was read" in list_warnings(part)


def test_hidden_row_does_not_split_a_table(tmp_path: Path) -> None:
    book = make_book(["Product", "Price"], ["Lamp", 30], ["Desk", 250], ["Sofa", 900])
    book.active.row_dimensions[3].hidden = True
    part = read_book(tmp_path, book)
    (table,) = (block for block in part.blocks if block.kind == "table")
    assert table.cells == "A1:B4" and "Desk" not in table.text


def test_white_text_is_hidden_only_on_white_ground(tmp_path: Path) -> None:
    book = make_book(["Item", "Price"], ["Lamp", 30], ["ignore this", 1])
    book.active["A1"].font = book.active["A3"].font = Font(color="FFFFFFFF")
    book.active["A1"].fill = PatternFill("solid", fgColor="FF1F4E78")
    part = read_book(tmp_path, book)
    text = "\n".join(list_table_lines(part))
    assert "Item" in text and "ignore" not in text and "A3 (invisible text)" in list_warnings(part)


@pytest.mark.parametrize(
    ("font", "fill", "is_hidden"),
    [
        (Font(color="FF1F4E78"), PatternFill("solid", fgColor="FF1F4E78"), True),
        (Font(color=Color(theme=1)), PatternFill("solid", fgColor=Color(theme=1)), True),
        (Font(color=Color(theme=0)), PatternFill("solid", fgColor=Color(theme=1)), False),
        (Font(color=Color(theme=0, tint=-0.5)), PatternFill(), False),
        (Font(sz=1), PatternFill(), True),
        (Font(color=Color(indexed=9)), PatternFill("lightGrid"), False),
    ],
)
def test_text_without_contrast_is_hidden(
    tmp_path: Path, font: Font, fill: PatternFill, is_hidden: bool
) -> None:
    book = make_book(["Item", "Price"], ["Lamp", 30], ["ignore this", 1])
    book.active["A3"].font, book.active["A3"].fill = font, fill
    part = read_book(tmp_path, book)
    assert ("ignore" not in "\n".join(list_table_lines(part))) == is_hidden


@pytest.mark.parametrize("kind", ["s", "inlineStr"])
def test_reading_aid_is_no_text(tmp_path: Path, kind: str) -> None:
    """Source: ECMA-376 part 1, 18.4.6 (rPh)."""
    item = '<r><t>東京</t></r><rPh sb="0" eb="2"><t>トウキョウ</t></rPh><r><t>都</t></r>'
    path, copy = tmp_path / "book.xlsx", tmp_path / "copy.xlsx"
    make_book(["City"]).save(path)
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w") as target:
        for name in source.namelist():
            data = source.read(name).decode()
            if kind == "inlineStr" and name.endswith("sheet1.xml"):
                data = data.replace('t="s"><v>0</v>', f't="inlineStr"><is>{item}</is>')
            target.writestr(name, data.replace("<t>City</t>", item))
    assert join_text(read_workbook(copy)).endswith("東京都")


def test_struck_and_raised_cells_are_marked(tmp_path: Path) -> None:
    book = make_book(["Item", "Price", "Note"], ["Lamp", 24, "a"], ["Lamp", 19, "b"])
    book.active["B2"].font = Font(strike=True)
    book.active["B2"].number_format = "0.00"
    book.active["C2"] = CellRichText(
        TextBlock(InlineFont(strike=True), "90"),
        " 72, 10",
        TextBlock(InlineFont(vertAlign="superscript"), "6"),
    )
    lines = list_table_lines(read_book(tmp_path, book))
    assert lines[1:] == ["| Lamp | ~~24.00~~ | ~~90~~ 72, 10⁶ |", "| Lamp | 19 | b |"]


def test_formula_without_cached_value_is_named(tmp_path: Path) -> None:
    book = make_book(["Item", "Cost"], ["Sand", 120], ["Gravel", 80], ["Total", "=SUM(B2:B3)"])
    part = read_book(tmp_path, book)
    assert "FORMULA_WITHOUT_VALUE: sheet Rates" in list_warnings(part)
    assert "cached value in B4" in list_warnings(part)


def test_comments_are_read_with_their_cell(tmp_path: Path) -> None:
    book = make_book(["Item", "Cost"], ["Sand", 120])
    book.active["B2"].comment = Comment("without transport", "Ana")
    texts = [block.text for block in read_book(tmp_path, book).blocks]
    assert "B2: without transport" in texts


@pytest.mark.parametrize("far", ["XFD1048576", "A1048576", "XFD1", "M5000"])
def test_far_cell_takes_no_memory(tmp_path: Path, far: str) -> None:
    book = make_book(["Name", "Depth"], ["Well 3", 87])
    book.active[far] = "far"
    part = read_book(tmp_path, book)
    assert list_table_lines(part)[:2] == ["| Name | Depth |", "| Well 3 | 87 |"] or far == "XFD1"
    assert any("far" in block.text for block in part.blocks)
    assert sum(len(block.text) for block in part.blocks) < 500


def list_raw_values(part: ParsedPart) -> dict[str, str]:
    """Return the stored value of each cell that shows it in another form, by its text."""
    return {
        block.text[start:end]: raw_value
        for block in part.blocks
        for start, end, raw_value in block.raw_cells or ()
    }


def test_cells_keep_the_values_that_they_show_otherwise(tmp_path: Path) -> None:
    day = datetime(2025, 3, 4)
    cells = [
        (12_487_300, '0.0,,"M"'),
        (0.404, "0%"),
        (1250.5, '"€" #,##0'),
        (day, "mm/dd/yyyy"),
        (day, "mmm yyyy"),
        (datetime(2025, 3, 4, 8, 15), "d.m.yy hh:mm"),
        (time(8, 15), "h:mm AM/PM"),
        (417, '"KX-"0000'),
        (-3.25, "0.0;(0.0)"),
    ]
    book = make_book(["Kind", "Value | unit"], *[["x", value] for value, _ in cells])
    for row, (_, code) in enumerate(cells, 2):
        book.active.cell(row, 2).number_format = code
    assert list_raw_values(read_book(tmp_path, book)) == {
        "12.5M": "12487300",
        "40%": "0.404",
        "€ 1,251": "1250.5",
        "03/04/2025": "2025-03-04",
        "Mar 2025": "2025-03-04",
        "4.3.25 08:15": "2025-03-04T08:15:00",
        "8:15 AM": "08:15:00",
        "KX-0417": "417",
        "(3.3)": "-3.25",
    }


def test_cells_that_show_their_value_keep_no_other(tmp_path: Path) -> None:
    cells = [
        (1_250_000, "#,##0"),
        (30, "0.00"),
        (1 / 3, "General"),
        (datetime(2025, 3, 4), "yyyy-mm-dd"),
        (timedelta(hours=27, minutes=30), "[h]:mm"),
        ("text", "0.0"),
        (True, "General"),
    ]
    book = make_book(["Kind", "Value"], *[["x", value] for value, _ in cells])
    for row, (_, code) in enumerate(cells, 2):
        book.active.cell(row, 2).number_format = code
    book.active["B3"].font = Font(strike=True)
    assert list_raw_values(read_book(tmp_path, book)) == {}


def test_raw_values_reach_the_chunks_of_a_long_table(tmp_path: Path) -> None:
    values = range(1_000_000, 1_000_300)
    book = make_book(["Lot", "Value"], *[[f"L-{value % 1000}", value] for value in values])
    for row in range(2, 302):
        book.active.cell(row, 2).number_format = '0.0,,"M"'
    transcript = assemble_transcript([read_book(tmp_path, book)], pages=None)
    parents = StructureChunker(ChunkConfig()).chunk(content_id("book"), "Rates", transcript)
    children = [child for parent in parents for child in parent.children]
    raw_values = []
    for child in children:
        for span in child.spans:
            # As the table of chunks holds it.
            assert Span.model_validate(span.model_dump(exclude_none=True)) == span
            for cell in span.raw_cells or ():
                start, end = cell.char_start - child.char_start, cell.char_end - child.char_start
                assert child.text[start:end] == "1.0M"
                raw_values.append(cell.raw_value)
    assert len(children) > 3 and raw_values == list(map(str, values))


def test_raw_values_follow_merged_cells_and_joined_headers(tmp_path: Path) -> None:
    book = make_book(
        ["Region", "2025", None], [None, "Q1", "Q2"], ["Norte", 1_300_000, 2], ["Sul", None, 4]
    )
    book.active.merge_cells("B1:C1")
    book.active.merge_cells("B3:B4")
    book.active["B3"].number_format = '"$"0.0,,'
    (table,) = (block for block in read_book(tmp_path, book).blocks if block.kind == "table")
    assert [table.text[start:end] for start, end, _ in table.raw_cells or ()] == ["$1.3", "$1.3"]


# OpenDocument


def write_ods(folder: Path, rows: str) -> Path:
    hidden = f'<table:table table:name="Old" table:style-name="hid">{make_ods_row("zebra")}'
    tables = f'<table:table table:name="Rates">{rows}</table:table>{hidden}</table:table>'
    return write_odf(folder, "ods", tables)


def make_ods_row(*texts: str, attributes: str = "") -> str:
    cells = "".join(
        f"<table:table-cell><text:p>{text}</text:p></table:table-cell>" for text in texts
    )
    return f"<table:table-row {attributes}>{cells}</table:table-row>"


def test_ods_cells_are_read_as_shown(tmp_path: Path) -> None:
    rows = (
        "<table:table-column/><table:table-column/>"
        '<table:table-column table:visibility="collapse"/>'
        + make_ods_row("Item", "Price", "Margin")
        + make_ods_row("Lamp", '<text:span text:style-name="del">24.00</text:span> 19', "9")
        + make_ods_row("Area", 'm<text:span text:style-name="sup">2</text:span>', "9")
        + make_ods_row("Desk", "7", "9", attributes='table:visibility="collapse"')
        + make_ods_row("", attributes='table:number-rows-repeated="1048000"')
    )
    part = read_workbook(write_ods(tmp_path, rows))
    assert list_table_lines(part) == [
        "| Item | Price |",
        "| Lamp | ~~24.00~~ 19 |",
        "| Area | m² |",
    ]
    for name in ("row 4", "column C", "sheet Old"):
        assert name in list_warnings(part)


def test_ods_values_are_kept_by_type(tmp_path: Path) -> None:
    cells = [
        ('office:value-type="float" office:value="1250"', "1.250"),
        ('office:value-type="float" office:value="1250.5"', "1,250.50"),
        ('office:value-type="percentage" office:value="0.125"', "12,5 %"),
        ('office:value-type="currency" office:value="1300000"', "1,3 Mio. €"),
        ('office:value-type="date" office:date-value="2025-03-04"', "04.03.25"),
        ('office:value-type="time" office:time-value="PT08H15M00S"', "08:15"),
        ('office:value-type="date" office:date-value="x); drop table"', "05.03.25"),
        ('office:value-type="string"', "text"),
    ]
    rows = make_ods_row("Kind", "Value") + "".join(
        "<table:table-row><table:table-cell><text:p>x</text:p></table:table-cell>"
        f"<table:table-cell {attributes}><text:p>{text}</text:p></table:table-cell>"
        "</table:table-row>"
        for attributes, text in cells
    )
    assert list_raw_values(read_workbook(write_ods(tmp_path, rows))) == {
        "1.250": "1250",
        "12,5 %": "0.125",
        "1,3 Mio. €": "1300000",
        "04.03.25": "2025-03-04",
    }


@pytest.mark.parametrize(
    "stored",
    ['value-type="float" office:value="777"', 'value-type="string" office:string-value="777"'],
)
def test_ods_value_that_its_format_hides_is_left_out(tmp_path: Path, stored: str) -> None:
    zero = 'value-type="float" office:value="0"'
    rows = make_ods_row("Item", "Price") + "".join(
        f"<table:table-row><table:table-cell><text:p>{item}</text:p></table:table-cell>"
        f"<table:table-cell office:{value}/></table:table-row>"
        for item, value in (("Lamp", stored), ("Desk", zero))
    )
    path = write_ods(tmp_path, rows)
    part = read_workbook(path)
    assert "777" not in join_text(part) and "B2 (invisible text)" in list_warnings(part)
    assert "B3" not in list_warnings(part)
    with keep_hidden_text(True):
        assert "777" in join_text(read_workbook(path))


def test_ods_merged_header_is_joined(tmp_path: Path) -> None:
    span = (
        '<table:table-row><table:table-cell table:number-rows-spanned="2"><text:p>Region</text:p>'
        '</table:table-cell><table:table-cell table:number-columns-spanned="2"><text:p>2025'
        "</text:p></table:table-cell><table:covered-table-cell/></table:table-row>"
        "<table:table-row><table:covered-table-cell/><table:table-cell><text:p>Q1</text:p>"
        "</table:table-cell><table:table-cell><text:p>Q2</text:p></table:table-cell>"
        "</table:table-row>"
    )
    rows = span + make_ods_row("Norte", "13", "14") + make_ods_row("Sul", "23", "24")
    lines = list_table_lines(read_workbook(write_ods(tmp_path, rows)))
    assert lines[0] == "| Region | 2025 Q1 | 2025 Q2 |"


# Binary formats


def make_xls_record(number: int, data: bytes = b"") -> bytes:
    return struct.pack("<HH", number, len(data)) + data


def test_encrypted_xls_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "book.xls"
    start = make_xls_record(0x809, struct.pack("<HHHHII", 0x600, 5, 0, 1996, 0, 0))
    path.write_bytes(start + make_xls_record(0x2F, b"\1\0" * 20) + make_xls_record(0x0A))
    with pytest.raises(UnreadableDocument) as caught:
        read_workbook(path)
    assert caught.value.code == "ENCRYPTED_DOCUMENT"


def test_xlsb_is_read_like_xlsx(tmp_path: Path) -> None:
    part = read_workbook(write_xlsb(tmp_path, make_xlsb()))
    assert list_table_lines(part) == ["| Kind | Value |", "| sales | 12.5M |", "| price | ~~24~~ |"]
    assert "row 4" in list_warnings(part) and "sheet Old" in list_warnings(part)
    assert list_raw_values(part) == {"12.5M": "12500000"}


@pytest.mark.parametrize(
    ("color", "fill", "is_hidden"),
    [
        # By value, by place in the theme, by index; a tinted color is not known.
        ((5, 0, 0, 255, 255, 255, 255), (0, 0), True),
        ((7, 0, 0, 0, 0, 0, 0), (0, 0), True),
        ((3, 9, 0, 0, 0, 0, 0), (0, 0), True),
        ((7, 0, 100, 0, 0, 0, 0), (0, 0), False),
        ((3, 8, 0, 0, 0, 0, 0), (0, 0), False),
        ((3, 9, 0, 0, 0, 0, 0), (1, 8), False),
        ((3, 12, 0, 0, 0, 0, 0), (1, 12), True),
        ((3, 9, 0, 0, 0, 0, 0), (9, 9), False),
    ],
)
def test_xlsb_text_without_contrast_is_hidden(
    tmp_path: Path, color: tuple[int, ...], fill: tuple[int, int], is_hidden: bool
) -> None:
    parts = make_xlsb()
    pattern, index = fill
    parts["xl/styles.bin"] = (
        make_xlsb_record(43, struct.pack("<HH8xBBhBBBB", 220, 0, *color) + bytes(4))
        + make_xlsb_record(45, struct.pack("<IBBhBBBB", pattern, 3, index, 0, 0, 0, 0, 0))
        + make_xlsb_record(617)
        + make_xlsb_record(47, struct.pack("<HHHH", 0, 0, 0, 0) + bytes(8))
        + make_xlsb_record(618)
    )
    warnings = list_warnings(read_workbook(write_xlsb(tmp_path, parts)))
    assert ("cell A1 (invisible text)" in warnings) == is_hidden


@pytest.mark.parametrize("part", sorted(make_xlsb()))
def test_damaged_xlsb_is_refused_or_read(tmp_path: Path, part: str) -> None:
    parts = make_xlsb()
    for end in range(0, len(parts[part]), 3):
        for tail in (b"", b"\xff" * 9):
            damaged = {**parts, part: parts[part][:end] + tail}
            try:
                read_workbook(write_xlsb(tmp_path, damaged))
            except UnreadableDocument as error:
                assert error.code == "CORRUPT_DOCUMENT"
