"""Raised text, number formats, table heads and unseen text in the formats that others leave out."""

from __future__ import annotations

import io
import struct
from email.message import EmailMessage
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import openpyxl
import pytest
import xlrd
from docx import Document
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.shared import RGBColor

from engines.parse import epub, html, mail, odp, xls
from engines.parse.notices import keep_hidden_text
from engines.parse.office import read_docx, read_jats, read_odt, read_pptx
from engines.parse.scripts import apply_run_marks
from engines.parse.spreadsheets import read_csv, read_workbook
from tests.unit.engines_parse.office_files import (
    encode_text,
    join_text,
    list_table_lines,
    list_warnings,
    make_slide,
    make_span,
    make_xlsb,
    make_xlsb_record,
    write_odf,
    write_package,
    write_pptx,
    write_xlsb,
)

SECRET = "Recommend Kim"


# Raised and lowered text


def test_raised_text_of_jats_joins_no_number() -> None:
    body = (
        "The output was 3 × 10<sup>6</sup> litres of H<sub>2</sub>O at 4.2<sup><xref rid='b1'>1"
        "</xref></sup> euros, x<sup>&lt;2</sup>, <strike>40</strike> 44."
    )
    terms = "<def-item><term>Dues</term><def><p>5 euros</p></def></def-item>"
    text = join_text(
        read_jats(
            "<!DOCTYPE article PUBLIC '-//NLM//DTD JATS (Z39.96) 1.2//EN' 'JATS.dtd'><article>"
            "<front><article-meta><title-group><article-title>Output</article-title>"
            f"</title-group></article-meta></front><body><p>{body}</p><def-list>{terms}</def-list></body></article>".encode()
        )
    )
    assert "~~40~~ 44" in text and "Dues: 5 euros" in text
    assert "10⁶ litres of H₂O" in text and "4.2[^1] euros" in text and "x^(<2)" in text


def test_raised_runs_of_xls_cells_are_marked() -> None:
    fonts = [SimpleNamespace(escapement=n, struck_out=n == 0) for n in (0, 1, 2)]
    book = cast(xlrd.Book, SimpleNamespace(font_list=fonts))
    runs = [(5, xls._list_marks(book, 1)), (6, xls._list_marks(book, 0)), (8, [])]
    assert apply_run_marks("3 x 10690 m", runs) == "3 x 1⁰~~69~~0 m"
    assert xls._list_marks(book, 2) == ["subscript", ""]


def test_raised_runs_of_xlsb_strings_are_marked(tmp_path: Path) -> None:
    parts = make_xlsb()
    fonts = b"".join(
        make_xlsb_record(43, struct.pack("<HHHH", 220, flags, 0, script) + bytes(16))
        for flags, script in ((0, 0), (0, 1), (8, 0))
    )
    parts["xl/styles.bin"] = fonts + make_xlsb_record(617) + make_xlsb_record(618)
    runs = struct.pack("<IHHHHHH", 3, 7, 1, 8, 0, 9, 2)
    parts["xl/sharedStrings.bin"] = make_xlsb_record(19, b"\1" + encode_text("Kind 106 9") + runs)
    assert "| Kind 10⁶ ~~9~~ |" in list_table_lines(read_workbook(write_xlsb(tmp_path, parts)))[0]


def test_raised_text_by_css_joins_no_number() -> None:
    page = b"<p>10<span style='vertical-align: super'>6</span> litres of CO<sub>2</sub></p>"
    assert join_text(html.read(page)) == "10⁶ litres of CO₂"


def test_raised_text_of_odp_tables_is_marked(tmp_path: Path) -> None:
    rows = (("Unit", "Area"), ("m", f"m{make_span('sup', '2')}"))
    path = write_odf(tmp_path, "odp", make_slide(make_odp_table(rows)))
    assert list_table_lines(odp.read(path)) == ["| Unit | Area |", "| m | m² |"]


# Number formats


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        (12_500_000, '[>=1000000]0.0,,"M";[>=1000]0,"k";0', "12.5M"),
        (1_250, '[>=1000000]0.0,,"M";[>=1000]0,"k";0', "1k"),
        (4217, "00000", "04217"),
        (0.25, "# ?/?", "1/4"),
        (-3, "#,##0;(#,##0)", "(3)"),
        (2.5, '0.0 "kg"', "2.5 kg"),
        ("X9", '"KX-"@', "KX-X9"),
        ("X9", '0;-0;0;"see "@', "see X9"),
    ],
)
def test_formats_of_binary_cells_are_those_of_xlsx(
    tmp_path: Path, value: Any, code: str, shown: str
) -> None:
    book = openpyxl.Workbook()
    book.active.append(["Kind", "Value"])
    book.active.append(["x", value])
    book.active["B2"].number_format = code
    book.save(tmp_path / "a.xlsx")
    assert list_table_lines(read_workbook(tmp_path / "a.xlsx"))[1] == f"| x | {shown} |"
    is_text = isinstance(value, str)
    cell = SimpleNamespace(
        ctype=xlrd.XL_CELL_TEXT if is_text else xlrd.XL_CELL_NUMBER,
        value=value if is_text else float(value),
    )
    assert xls._format_value(cast(xlrd.sheet.Cell, cell), code, False).strip() == shown


@pytest.mark.parametrize(
    ("value", "code"), [(777, ";;;"), ("Recommend Kim", ";;;"), (777, "0;0;0;@;"), (-777, "0;")]
)
def test_value_that_its_format_hides_is_left_out(tmp_path: Path, value: Any, code: str) -> None:
    book = openpyxl.Workbook()
    book.active.append(["Item", "Price"])
    book.active.append(["Lamp", 30])
    book.active.append(["Desk", value])
    book.active["B3"].number_format = code
    book.save(tmp_path / "a.xlsx")
    part = read_workbook(tmp_path / "a.xlsx")
    is_shown = code == "0;0;0;@;"
    assert (str(value) in join_text(part)) == is_shown
    assert ("B3 (invisible text)" in list_warnings(part)) != is_shown
    with keep_hidden_text(True):
        assert str(value) in join_text(read_workbook(tmp_path / "a.xlsx"))


def test_suppressed_zeros_are_no_hidden_text(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["Item", "Price"], ["Lamp", 0], ["Desk", 9]):
        book.active.append(row)
    book.active["B2"].number_format = "0;-0;;@"
    book.save(tmp_path / "a.xlsx")
    part = read_workbook(tmp_path / "a.xlsx")
    assert list_table_lines(part)[1:] == ["| Lamp |  |", "| Desk | 9 |"] and not part.notices


# Table heads

GROUPED = ["| Region | 2024 Q1 | 2024 Q2 |", "| Norte | 11 | 12 |", "| Sul | 21 | 22 |"]
ROWS = [["Region", "2024", ""], ["", "Q1", "Q2"], ["Norte", "11", "12"], ["Sul", "21", "22"]]


def make_odp_table(rows: Any, spans: dict[tuple[int, int], str] | None = None) -> str:
    cells = [
        "".join(
            f"<table:table-cell {(spans or {}).get((i, j), '')}><text:p>{text}</text:p>"
            "</table:table-cell>"
            for j, text in enumerate(row)
        )
        for i, row in enumerate(rows)
    ]
    lines = "".join(f"<table:table-row>{line}</table:table-row>" for line in cells)
    return (
        '<draw:frame svg:x="1cm" svg:y="1cm" svg:width="9cm" svg:height="2cm"><table:table>'
        f"{lines}</table:table></draw:frame>"
    )


def test_header_rows_of_csv_are_joined() -> None:
    data = "\n".join(",".join(row) for row in ROWS).encode()
    assert list_table_lines(read_csv(data)) == GROUPED


def test_header_rows_of_odp_are_joined(tmp_path: Path) -> None:
    spans = {(0, 0): 'table:number-rows-spanned="2"', (0, 1): 'table:number-columns-spanned="2"'}
    path = write_odf(tmp_path, "odp", make_slide(make_odp_table(ROWS, spans)))
    assert list_table_lines(odp.read(path)) == GROUPED


def test_header_rows_of_odt_are_joined(tmp_path: Path) -> None:
    spans = {(0, 0): 'table:number-rows-spanned="2"', (0, 1): 'table:number-columns-spanned="2"'}
    table = make_odp_table(ROWS, spans)
    table = table[table.index("<table:table>") : table.index("</draw:frame>")]
    table = table.replace("<table:table-cell ><text:p></text:p></table:table-cell>", COVERED)
    assert list_table_lines(read_odt(write_odf(tmp_path, "odt", table))) == GROUPED


COVERED = "<table:covered-table-cell/>"


def test_header_rows_of_docx_are_joined(tmp_path: Path) -> None:
    document = Document()
    table = document.add_table(4, 3)
    for i, row in enumerate(ROWS):
        for j, text in enumerate(row):
            table.cell(i, j).text = text
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(0, 1).merge(table.cell(0, 2))
    document.save(str(tmp_path / "a.docx"))
    assert list_table_lines(read_docx(tmp_path / "a.docx")) == GROUPED


def test_header_rows_of_pptx_are_joined(tmp_path: Path) -> None:
    marks = {(0, 0): 'rowSpan="2"', (1, 0): 'vMerge="1"', (0, 1): 'gridSpan="2"'}
    marks |= {(0, 2): 'hMerge="1"'}
    lines = "".join(
        '<a:tr h="100">'
        + "".join(
            f"<a:tc {marks.get((i, j), '')}><a:txBody><a:bodyPr/><a:p><a:r><a:t>{text}</a:t></a:r>"
            "</a:p></a:txBody><a:tcPr/></a:tc>"
            for j, text in enumerate(row)
        )
        + "</a:tr>"
        for i, row in enumerate(ROWS)
    )
    frame = (
        '<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="4" name="T"/><p:cNvGraphicFramePr/>'
        '<p:nvPr/></p:nvGraphicFramePr><p:xfrm><a:off x="0" y="0"/><a:ext cx="900" cy="900"/>'
        '</p:xfrm><a:graphic><a:graphicData uri="http://schemas.openxmlformats.org/drawingml/2006/'
        'table"><a:tbl><a:tblPr firstRow="1"/><a:tblGrid>'
        + '<a:gridCol w="100"/>' * 3
        + f"</a:tblGrid>{lines}</a:tbl></a:graphicData></a:graphic></p:graphicFrame>"
    )
    assert list_table_lines(read_pptx(write_pptx(tmp_path, frame))) == GROUPED


# Text that cannot be seen


def write_epub(path: Path, page: str, css: str) -> Path:
    return write_package(
        path,
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": (
                '<container><rootfiles><rootfile full-path="OPS/a.opf"/></rootfiles></container>'
            ),
            "OPS/a.opf": "<package><metadata><dc:title>Handbook</dc:title></metadata><manifest>"
            '<item id="c" href="c.xhtml" media-type="application/xhtml+xml"/>'
            '<item id="s" href="css/a.css" media-type="text/css"/></manifest>'
            '<spine><itemref idref="c"/></spine></package>',
            "OPS/css/a.css": css,
            "OPS/c.xhtml": '<html><head><link rel="stylesheet" href="css/a.css"/></head>'
            f"<body>{page}</body></html>",
        },
    )


@pytest.mark.parametrize(
    ("page", "is_hidden"),
    [
        (f'<p class="off">{SECRET}</p>', True),
        (f'<p class="white">{SECRET}</p>', True),
        (f'<p class="on">{SECRET}</p>', False),
        # A note that the reader shows where its mark is tapped.
        (f'<aside class="off" epub:type="footnote">{SECRET}</aside>', False),
    ],
)
def test_style_sheets_of_books_hide_text(tmp_path: Path, page: str, is_hidden: bool) -> None:
    css = ".off { display: none } .white { color: #fefefe } .on { color: #222 }"
    part = epub.read(write_epub(tmp_path / "a.epub", f"<p>Pier B.</p>{page}", css))
    assert "Pier B." in join_text(part)
    assert (SECRET in join_text(part)) != is_hidden
    assert ("HIDDEN_TEXT" in list_warnings(part)) == is_hidden


@pytest.mark.parametrize(
    ("style", "is_hidden"),
    [
        ("max-height:0;overflow:hidden", True),
        ("width:0px;overflow:hidden", True),
        ("font-size:0", True),
        ("height:0", False),
        ("max-height:20px;overflow:hidden", False),
    ],
)
def test_boxes_without_size_hide_text_of_mail(style: str, is_hidden: bool) -> None:
    message = EmailMessage()
    message["Subject"] = "Offer"
    message.set_content(f"<div style='{style}'>{SECRET}</div><p>Pier B.</p>", subtype="html")
    part = mail.read(message.as_bytes())
    assert "Pier B." in join_text(part)
    assert (SECRET in join_text(part)) != is_hidden


@pytest.mark.parametrize(
    ("body", "is_hidden"),
    [
        (f'<text:section text:display="none"><text:p>{SECRET}</text:p></text:section>', True),
        (f"<text:section><text:p>{SECRET}</text:p></text:section>", False),
        (f'<text:p><text:hidden-text text:is-hidden="true">{SECRET}</text:hidden-text></text:p>',
         True),
        (f'<text:p><text:hidden-text text:is-hidden="false">{SECRET}</text:hidden-text></text:p>',
         False),
        (f'<text:p>{SECRET}<text:hidden-paragraph text:is-hidden="true"/></text:p>', True),
    ],
)  # fmt: skip
def test_hidden_sections_and_fields_of_odt_are_left_out(
    tmp_path: Path, body: str, is_hidden: bool
) -> None:
    part = read_odt(write_odf(tmp_path, "odt", f"<text:p>Pier B.</text:p>{body}"))
    assert "Pier B." in join_text(part)
    assert (SECRET in join_text(part)) != is_hidden
    assert ("HIDDEN_TEXT" in list_warnings(part)) == is_hidden


@pytest.mark.parametrize(
    ("style", "is_shaded", "is_hidden"),
    [("", False, True), ("", True, False), ("Light Grid Accent 1", False, False)],
)
def test_white_text_in_plain_table_of_docx_is_left_out(
    tmp_path: Path, style: str, is_shaded: bool, is_hidden: bool
) -> None:
    document = Document()
    table = document.add_table(2, 2, style=style or None)
    for i, text in enumerate(("Item", "Price", "Lamp", "30")):
        table.cell(i // 2, i % 2).text = text
    run = table.cell(1, 1).paragraphs[0].add_run(SECRET)
    run.font.color.rgb = RGBColor(255, 255, 255)
    if is_shaded:
        shade = OxmlElement("w:shd")
        shade.set(qn("w:fill"), "104080")
        table.cell(1, 1)._tc.get_or_add_tcPr().append(shade)
    stream = io.BytesIO()
    document.save(stream)
    (tmp_path / "a.docx").write_bytes(stream.getvalue())
    part = read_docx(tmp_path / "a.docx")
    assert (SECRET in join_text(part)) != is_hidden
