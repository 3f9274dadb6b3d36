"""Numbers of a workbook are formatted as in its application."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest

from engines.parse.number_formats import format_number
from engines.parse.spreadsheets import read_workbook


@pytest.mark.parametrize(
    ("value", "code", "expected"),
    [
        (21.3, "0.00", "21.30"),
        (1234.5, "#,##0.00", "1,234.50"),
        (0.125, "0.0%", "12.5%"),
        (0.12, "0%", "12%"),
        (-5.0, "0.00;(0.00)", "-5.00"),
        (1500.0, '"$"#,##0.00', "$1,500.00"),
        (287500.0, '#,##0\\ "SEK"', "287,500 SEK"),
        (99.5, "[$€-407] 0.00", "€99.50"),
        (2.5, "0.0#", "2.5"),
        (7.0, "0", "7"),
    ],
)
def test_number_format_code_is_applied(value: float, code: str, expected: str) -> None:
    assert format_number(value, code) == expected


@pytest.mark.parametrize("code", ["General", "yyyy-mm-dd", "0.00E+00", "# ?/?", "@", ""])
def test_unsupported_number_formats_are_not_applied(code: str) -> None:
    assert format_number(1.5, code) is None


def test_workbook_keeps_trailing_zeros(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Prices"
    for row in (
        ["Item", "Price", "Share"],
        ["Bolt", 21.3, 0.5],
        ["Nut", 4, 0.125],
        ["Free", 1.5, None],
    ):
        sheet.append(row)
    for cell in ("B2", "B3"):
        sheet[cell].number_format = "0.00"
    sheet["C3"].number_format = "0.0%"
    book.save(tmp_path / "prices.xlsx")
    table = next(
        draft.text
        for draft in read_workbook(tmp_path / "prices.xlsx").blocks
        if draft.kind == "table"
    )
    assert table.splitlines()[2:] == [
        "| Bolt | 21.30 | 0.5 |",
        "| Nut | 4.00 | 12.5% |",
        "| Free | 1.5 |  |",
    ]
