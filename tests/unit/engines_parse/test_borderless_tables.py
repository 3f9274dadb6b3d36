"""Tables and forms without ruling lines in PDFs."""

from __future__ import annotations

from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from tests.unit.engines_parse.drawn_pdfs import list_blocks, make_prose_lines, parse_drawn_pdf

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
