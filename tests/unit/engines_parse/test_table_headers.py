"""The first row of a table names its columns only where something says so."""

from __future__ import annotations

import pytest

from engines.drafts import has_header
from engines.parse.html import read
from engines.parse.sheets import read_csv

DEPTHS = [["North quay", "7.4 m"], ["South quay", "9.1 m"]]
PRICES = [["Name", "Qty"], ["Apple", "3"], ["Pear", "5"]]


@pytest.mark.parametrize(
    ("rows", "on_a_page", "in_a_sheet"),
    [
        (DEPTHS, False, False),
        (PRICES, True, True),
        ([["Item", "2023", "2024"], ["Rent", "1,200", "1,300"], ["Power", "80", "90"]], True, True),
        ([["Year", "Place"], ["2011", "Porto"]], True, True),
        ([["Site", "Manager"], ["Porto", "Ana"]], False, True),
        ([["only", "one row"]], False, False),
        ([["2021", "Ana"], ["2022", "Rui"]], False, False),
    ],
)
def test_header_needs_evidence(rows: list[list[str]], on_a_page: bool, in_a_sheet: bool) -> None:
    assert (has_header(rows, by_convention=False), has_header(rows, by_convention=True)) == (on_a_page, in_a_sheet)


def markup(rows: list[list[str]], tag: str = "td") -> bytes:
    lines = [f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in rows[0])}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows[1:]]
    return f"<h1>Depths</h1><table>{''.join(lines)}</table>".encode()


def table_of(data: bytes) -> list[str]:
    return next(draft.text for draft in read(data).drafts if draft.kind == "table").splitlines()


def test_page_table_without_header_keeps_its_first_row() -> None:
    assert table_of(markup(DEPTHS)) == ["|  |  |", "| --- | --- |", "| North quay | 7.4 m |", "| South quay | 9.1 m |"]


def test_stated_and_bold_headers_stay() -> None:
    named = [["Quay", "Berth"], *DEPTHS]
    for data in (markup(named, "th"), markup([[f"<b>{cell}</b>" for cell in named[0]], *DEPTHS])):
        assert table_of(data)[:2] == ["| Quay | Berth |", "| --- | --- |"]


def test_summary_of_a_sheet_is_a_comment_with_true_counts() -> None:
    (summary,) = (draft.text for draft in read_csv(b"Name;Qty\nApple;3\n").drafts if draft.kind == "summary")
    assert summary == "<!-- 1 row, 2 columns. Columns: Name, Qty. -->"


def test_summary_cannot_be_closed_by_a_cell() -> None:
    (summary,) = (draft.text for draft in read_csv(b"a --> b;Qty\nApple;3\n").drafts if draft.kind == "summary")
    assert summary.count("-->") == 1 and summary.endswith(" -->")
