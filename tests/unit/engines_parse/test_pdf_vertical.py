"""Vertical writing in PDFs, and fonts that a PDF does not embed."""

from __future__ import annotations

from pathlib import Path

import pytest
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfgen.canvas import Canvas

from tests.unit.engines_parse.drawn_pdfs import (
    draw_lines,
    list_blocks,
    make_prose_lines,
    parse_drawn_pdf,
)

FONTS = {
    "ja": "HeiseiMin-W3",
    "zh": "STSong-Light",
    "tw": "MSung-Light",
    "ko": "HYSMyeongJo-Medium",
}


@pytest.fixture(autouse=True)
def register_fonts() -> None:
    for font in FONTS.values():
        pdfmetrics.registerFont(UnicodeCIDFont(font))


def draw_columns(canvas: Canvas, font: str, columns: list[str], pitch: float = 18) -> None:
    canvas.setFont(font, 14)
    for i, column in enumerate(columns):
        for j, letter in enumerate(column):
            canvas.drawString(500 - 30 * i, 760 - pitch * j, letter)


@pytest.mark.parametrize(
    ("language", "columns", "expected"),
    [
        ("ja", ["入場料は八百円", "休館日は月曜"], "入場料は八百円休館日は月曜"),
        ("ja", ["会議は三時です。", "部屋は五階です。"], "会議は三時です。\n部屋は五階です。"),
        ("zh", ["门票价格为八十元", "星期一闭馆"], "门票价格为八十元星期一闭馆"),
        ("tw", ["會議室在三樓"], "會議室在三樓"),
        ("ko", ["입장료는팔백원"], "입장료는팔백원"),
        # A column that ends far above the others ends a paragraph.
        ("ja", ["開館時間", "午前九時から午後五時まで"], "開館時間\n午前九時から午後五時まで"),
    ],
)
@pytest.mark.parametrize("pitch", [14, 18, 22])
def test_columns_are_read_from_the_top_and_from_the_right(
    tmp_path: Path, language: str, columns: list[str], expected: str, pitch: float
) -> None:
    def draw(canvas: Canvas) -> None:
        draw_columns(canvas, FONTS[language], columns, pitch)
        draw_lines(canvas, 60, 300, ["The body text of this page is plain."], 11)

    found = parse_drawn_pdf(tmp_path, draw)
    assert expected in found.markdown
    assert "The body text of this page is plain." in found.markdown
    block = next(
        block
        for block in found.blocks
        if expected == found.markdown[block.span.char_start : block.span.char_end]
    )
    assert block.span.page == 1
    assert block.span.box is not None and block.span.box[2] > 0.8 > block.span.box[3]


def test_vertical_font_is_read_in_columns(tmp_path: Path) -> None:
    pdfmetrics.registerFont(UnicodeCIDFont("HeiseiMin-W3", isVertical=True))

    def draw(canvas: Canvas) -> None:
        canvas.setFont("HeiseiMin-W3", 14)
        canvas.drawString(500, 760, "入場料は八百円です。")
        canvas.drawString(470, 760, "休館日は月曜です。")

    assert "入場料は八百円です。\n休館日は月曜です。" in parse_drawn_pdf(tmp_path, draw).markdown


def test_horizontal_lines_stay_lines_and_wrap_without_a_space(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("HeiseiMin-W3", 14)
        canvas.drawString(72, 760, "この施設の入場料は大人八百円、子")
        canvas.drawString(72, 742, "供四百円です。休館日は月曜です。")

    assert "大人八百円、子供四百円です。" in parse_drawn_pdf(tmp_path, draw).markdown


def test_letters_set_apart_in_lines_are_no_columns(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("HeiseiMin-W3", 14)
        for row, line in enumerate(["入場料表", "大人八百", "子供四百"]):
            for column, letter in enumerate(line):
                canvas.drawString(72 + 18 * column, 760 - 40 * row, letter)

    found = parse_drawn_pdf(tmp_path, draw).markdown.replace(" ", "")
    assert "入場料表" in found
    assert found.index("入場料表") < found.index("大人八百")


# Tables and forms without ruling lines in PDFs.

Rows = list[tuple[str, ...]]


def draw_rows(
    canvas: Canvas, rows: Rows, lefts: tuple[int, ...], top: float, pitch: float = 16
) -> None:
    canvas.setFont("Helvetica", 10)
    for i, row in enumerate(rows):
        for left, text in zip(lefts, row, strict=True):
            canvas.drawString(left, top - pitch * i, text)


@pytest.mark.parametrize(
    "rows",
    [
        [("Invoice number", "INV-2291"), ("Date", "3 May 2026"), ("Total", "1,476.00"),
         ("Customer", "Rui Costa")],
        [("Apólice", "AP-44102"), ("Titular", "Ana Lima"), ("Prémio", "1.250,00"),
         ("Início", "1 de maio")],
        [("Kundennummer", "40017"), ("Betrag", "312,40"), ("Ort", "Bremen")],
        [("Référence", "RF/2026/18"), ("Client", "Luc Morel"), ("Montant", "980,50")],
        [("Pedido", "10-4471"), ("Importe", "75,90"), ("Ciudad", "Vigo"), ("Estado", "abierto")],
        [("Boat:", "Gaivota II"), ("Length:", "12 m"), ("Berth:", "B 14")],
        [("Subtotal", "120.00"), ("VAT 23%", "27.60"), ("Total", "147.60")],
        [("Order", "4471-22"), ("Delivered", "14:30"), ("Weight", "2.5 kg"), ("Note", "fragile")],
        [("Phone", "+351 21 555 0188"), ("Postcode", "1200-309"), ("City", "Lisboa")],
    ],
)  # fmt: skip
def test_labels_with_values_are_pairs(tmp_path: Path, rows: Rows) -> None:
    def draw(canvas: Canvas) -> None:
        draw_rows(canvas, [(line,) for line in make_prose_lines("Note", 3)], (60,), 760)
        draw_rows(canvas, rows, (60, 220), 680)

    text = parse_drawn_pdf(tmp_path, draw).markdown
    for label, value in rows:
        assert f"- {label.removesuffix(':')}: {value}" in text
    assert "| --- |" not in text


def test_page_of_pairs_is_one_list(tmp_path: Path) -> None:
    rows = [("Name:", "Ana Reis"), ("Boat:", "Gaivota"), ("Berth:", "B7")]
    found = parse_drawn_pdf(tmp_path, lambda canvas: draw_rows(canvas, rows, (60, 220), 700))
    assert list_blocks(found) == [("list", "- Name: Ana Reis\n- Boat: Gaivota\n- Berth: B7")]


@pytest.mark.parametrize(
    "rows",
    [
        [("Item", "Price"), ("Lamp", "30.50"), ("Desk", "95.00"), ("Chair", "72.90")],
        [("Feature", "Model"), ("Weight", "12 kg"), ("Color", "red"), ("Price", "300.00")],
    ],
)
def test_column_names_stay_a_header(tmp_path: Path, rows: Rows) -> None:
    found = parse_drawn_pdf(tmp_path, lambda canvas: draw_rows(canvas, rows, (60, 160), 700))
    assert f"| {rows[0][0]} | {rows[0][1]} |\n| --- | --- |" in found.markdown


LEFT: Rows = [("Item", "Price"), ("Lamp", "30"), ("Desk", "95"), ("Chair", "72"), ("Shelf", "55")]
RIGHT: Rows = [("City", "Staff"), ("Faro", "12"), ("Porto", "31"), ("Beja", "7")]


@pytest.mark.parametrize(("top", "pitch"), [(676, 20), (672, 19), (690, 22)])
def test_tables_side_by_side_do_not_share_rows(tmp_path: Path, top: float, pitch: float) -> None:
    def draw(canvas: Canvas) -> None:
        draw_rows(canvas, LEFT, (60, 130), 680)
        draw_rows(canvas, RIGHT, (340, 410), top, pitch)

    found = parse_drawn_pdf(tmp_path, draw)
    tables = [text for kind, text in list_blocks(found) if kind == "table"]
    assert [text.count("\n") for text in tables] == [len(LEFT), len(RIGHT)]
    for table, rows in zip(tables, (LEFT, RIGHT), strict=True):
        assert all(f"| {name} | {value} |" in table for name, value in rows)


def test_one_table_with_empty_cells_stays_one(tmp_path: Path) -> None:
    rows: Rows = [
        ("Date", "Text", "Debit", "Credit"),
        ("2 May", "Rent", "480", ""),
        ("3 May", "Sale", "", "95"),
        ("4 May", "Sale", "", "72"),
        ("5 May", "Tools", "31", ""),
    ]

    def draw(canvas: Canvas) -> None:
        draw_rows(canvas, rows, (60, 130, 300, 400), 680)

    tables = [
        text for kind, text in list_blocks(parse_drawn_pdf(tmp_path, draw)) if kind == "table"
    ]
    assert len(tables) == 1 and "| 3 May | Sale |  | 95 |" in tables[0]
