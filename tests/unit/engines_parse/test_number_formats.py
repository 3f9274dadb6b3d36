"""Numbers of a workbook are formatted as in its application."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest

from engines.parse.number_formats import format_number, format_text
from engines.parse.spreadsheets import read_workbook

REFERENCE = Path(__file__).with_name("number_formats.tsv")
"""Recorded by `tests/support/record_number_formats.py`."""


@pytest.mark.parametrize(
    ("value", "code", "expected"),
    [
        (21.3, "0.00", "21.30"),
        (1234.5, "#,##0.00", "1,234.50"),
        (0.125, "0.0%", "12.5%"),
        (0.12, "0%", "12%"),
        (-5.0, "0.00;(0.00)", "(5.00)"),
        (1500.0, '"$"#,##0.00', "$1,500.00"),
        (287500.0, '#,##0\\ "SEK"', "287,500 SEK"),
        (2.5, "0.0#", "2.5"),
        (7.0, "0", "7"),
        (99.5, "[$€-407] 0.00", "€ 99.50"),
        (42, '"KX-"0000', "KX-0042"),
        (1_250_000, '[>=1000000]0.0,,"M";[>=1000]0.0,"k";0', "1.3M"),
        (-1500, '[>=1000]0.0,"k";0', "-1500"),
        (0.285, "0%", "29%"),
        (12_500_000_000, '0.0,,,"bn"', "12.5bn"),
        (5550188, "[<=9999999]###-####;(###) ###-####", "555-0188"),
        (9145550188, "[<=9999999]###-####;(###) ###-####", "(914) 555-0188"),
        (1.5, "[h]:mm:ss", "36:00:00"),
        (45992.75, '[$-816]d "de" mmmm, h:mm AM/PM', "1 de dezembro, 6:00 PM"),
        (1.5, "General", "1.5"),
        (-1, "yyyy-mm-dd", "-1"),
        (1234567890123456, "General", "1234567890123456"),
        (1 / 3, "General", "0.33333333333"),
        (5, ";;;", ""),
    ],
)
def test_number_is_shown_as_by_spreadsheet_program(value: float, code: str, expected: str) -> None:
    assert format_number(value, code) == expected


_DIFFERENT_IN_LIBREOFFICE = {
    '[>=1000]0.0,"k";0': "drops the minus",
    '[>=1000000]0.0,,"M";[>=1000]0.0,"k";0': "drops the minus",
    '[=0]"none";0': "drops the minus",
    "# ??/100": "rounds 7.5 hundredths down",
    "#,#": "shows no thousands separator",
    "#,##0,.00": "does not scale before the point",
    "0,.0": "does not scale before the point",
    "0,,.00": "does not scale before the point",
    "h:mm A/P": "shows a and p in lower case",
    "[$-F800]dddd": "shows the date as the system writes it",
}


def test_formats_agree_with_libreoffice() -> None:
    lines = REFERENCE.read_text(encoding="utf-8").splitlines()[1:]
    different = set()
    for line in lines:
        code, value, shown = line.split("\t")
        if " ".join(format_number(float(value), code).split()) != " ".join(shown.split()):
            different.add(code)
    assert len({line.split("\t")[0] for line in lines}) >= 300
    assert different == set(_DIFFERENT_IN_LIBREOFFICE)


def test_1904_dates_start_four_years_later() -> None:
    assert format_number(45992, "yyyy-mm-dd") == "2025-12-01"
    assert format_number(45992 - 1462, "yyyy-mm-dd", is_1904=True) == "2025-12-01"


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("417", '"KX-"@', "KX-417"),
        ("a", '0;-0;0;"("@")"', "(a)"),
        ("a", "0.00", "a"),
        ("a", "@", "a"),
        ("a", "0;0;0;", ""),
        ("a", ";;;", ""),
    ],
)
def test_text_section_formats_text(text: str, code: str, expected: str) -> None:
    assert format_text(text, code) == expected


@pytest.mark.parametrize(
    "code", ["0" * 5000, "[" * 900, "?/" * 400, ";" * 900, '"', "E+0", "0/", "/0"]
)
@pytest.mark.parametrize("value", [0.0, -1e300, 1e-300, 1e15 + 0.5])
def test_odd_format_code_does_not_fail(value: float, code: str) -> None:
    assert len(format_number(value, code)) < 3000


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
