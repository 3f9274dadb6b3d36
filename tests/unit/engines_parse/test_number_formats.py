"""Numbers of a workbook are formatted as in its application."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import openpyxl
import pytest

from engines.parse import html, markdown
from engines.parse.assembly import assemble_transcript
from engines.parse.number_formats import format_number, format_text
from engines.parse.spreadsheets import read_workbook
from engines.parse.text import parse_document_date
from engines.parsed_blocks import ParsedPart

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


# Dates that documents state.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01", date(2026, 3, 1)),
        ("2026-03-01T23:30:00-08:00", date(2026, 3, 1)),
        ("20260301", date(2026, 3, 1)),
        ("2026/03/01 10:00", date(2026, 3, 1)),
        ("D:20260301103000+02'00'", date(2026, 3, 1)),
        ("Sun, 1 Mar 2026 23:30:00 -0800", date(2026, 3, 1)),
        ("1 Mar 2026 10:00:00", date(2026, 3, 1)),
        (" 0999-12-31 ", date(999, 12, 31)),
        ("2026-03", None),
        ("2026", None),
        ("2026-13-01", None),
        ("2026-0301", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        ("9" * 1000, None),
        (datetime(2026, 3, 1, 23, tzinfo=UTC), date(2026, 3, 1)),
        (date(2026, 3, 1), date(2026, 3, 1)),
    ],
)
def test_stored_dates_are_read_by_day(text: str | date | None, expected: date | None) -> None:
    assert parse_document_date(text) == expected


def test_first_part_with_date_gives_that_of_document() -> None:
    parts = [ParsedPart(), ParsedPart(document_date=date(2026, 3, 1)), ParsedPart()]
    parts = [ParsedPart.decode(part.encode()) for part in parts]
    assert assemble_transcript(parts, pages=None).document_date == date(2026, 3, 1)
    assert assemble_transcript([ParsedPart()], pages=None).document_date is None


def test_date_in_front_matter_is_found() -> None:
    assert markdown.read(b"---\ndate: 2026-03-01\n---\nText.").document_date == date(2026, 3, 1)


def test_date_in_meta_elements_is_found() -> None:
    page = b'<meta property="article:published_time" content="2026-03-01T10:00:00Z"><p>Text.</p>'
    assert html.read(page).document_date == date(2026, 3, 1)
