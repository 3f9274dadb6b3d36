"""The first row of a table is its header only if it is marked as one."""

from __future__ import annotations

import pytest

from engines.parse.html import read
from engines.parse.spreadsheets import read_csv
from engines.parsed_blocks import has_header

DEPTH_ROWS = [["North quay", "7.4 m"], ["South quay", "9.1 m"]]
PRICE_ROWS = [["Name", "Qty"], ["Apple", "3"], ["Pear", "5"]]


@pytest.mark.parametrize(
    ("rows", "on_a_page", "in_a_sheet"),
    [
        (DEPTH_ROWS, False, False),
        (PRICE_ROWS, True, True),
        ([["Item", "2023", "2024"], ["Rent", "1,200", "1,300"], ["Power", "80", "90"]], True, True),
        ([["Year", "Place"], ["2011", "Porto"]], True, True),
        ([["Site", "Manager"], ["Porto", "Ana"]], False, True),
        ([["only", "one row"]], False, False),
        ([["2021", "Ana"], ["2022", "Rui"]], False, False),
    ],
)
def test_table_header_requires_evidence(
    rows: list[list[str]], on_a_page: bool, in_a_sheet: bool
) -> None:
    assert (has_header(rows, by_convention=False), has_header(rows, by_convention=True)) == (
        on_a_page,
        in_a_sheet,
    )


def make_html_table(rows: list[list[str]], tag: str = "td") -> bytes:
    lines = [f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in rows[0])}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows[1:]]
    return f"<h1>Depths</h1><table>{''.join(lines)}</table>".encode()


def parse_table_lines(data: bytes) -> list[str]:
    return next(draft.text for draft in read(data).blocks if draft.kind == "table").splitlines()


def test_html_table_without_header_keeps_first_row() -> None:
    assert parse_table_lines(make_html_table(DEPTH_ROWS)) == [
        "|  |  |",
        "| --- | --- |",
        "| North quay | 7.4 m |",
        "| South quay | 9.1 m |",
    ]


def test_th_and_bold_cells_are_table_headers() -> None:
    named = [["Quay", "Berth"], *DEPTH_ROWS]
    for data in (
        make_html_table(named, "th"),
        make_html_table([[f"<b>{cell}</b>" for cell in named[0]], *DEPTH_ROWS]),
    ):
        assert parse_table_lines(data)[:2] == ["| Quay | Berth |", "| --- | --- |"]


def test_csv_summary_is_a_comment_with_row_count() -> None:
    (summary,) = (
        draft.text for draft in read_csv(b"Name;Qty\nApple;3\n").blocks if draft.kind == "summary"
    )
    assert summary == "<!-- 1 row, 2 columns. Columns: Name, Qty. -->"


def test_cell_cannot_close_summary_comment() -> None:
    (summary,) = (
        draft.text
        for draft in read_csv(b"a --> b;Qty\nApple;3\n").blocks
        if draft.kind == "summary"
    )
    assert summary.count("-->") == 1 and summary.endswith(" -->")
