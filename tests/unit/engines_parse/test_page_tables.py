"""Tables that pages divide, tables of labels and values, and headers of two rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from engines.parse.assembly import remove_running_headers
from engines.parse.html import read
from engines.parse.spreadsheets import read_csv
from engines.parsed_blocks import ParsedBlock, has_header
from tests.unit.engines_parse.drawn_pdfs import (
    draw_lines,
    list_blocks,
    make_prose_lines,
    parse_drawn_pdf,
)


def draw_rows(canvas: Canvas, top: float, rows: list[list[str]], left: float = 80) -> None:
    canvas.setFont("Helvetica", 10)
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            canvas.drawString(left + 120 * j, top - 16 * i, cell)


def draw_on_pages(*pages: Callable[[Canvas], None]) -> Callable[[Canvas], None]:
    remaining = iter(pages)
    return lambda canvas: next(remaining)(canvas)


def list_headers(tmp_path: Path, *pages: Callable[[Canvas], None]) -> list[str]:
    found = parse_drawn_pdf(tmp_path, draw_on_pages(*pages), pages=len(pages))
    return [text.split("\n")[0] for kind, text in list_blocks(found) if kind == "table"]


NUMBERS = [["well", "depth"], ["W1", "12.5"], ["W2", "13.0"], ["W3", "14.5"]]
NAMES = [["well", "owner"], ["W1", "Ana"], ["W2", "Rui"], ["W3", "Eva"]]


@pytest.mark.parametrize("rows", [NUMBERS, NAMES])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_continued_table_has_header_on_each_page(
    tmp_path: Path, rows: list[list[str]], is_repeated: bool
) -> None:
    rest = [*(rows[:1] if is_repeated else []), *rows[1:]]
    headers = list_headers(
        tmp_path,
        lambda canvas: draw_rows(canvas, 200, rows),
        lambda canvas: draw_rows(canvas, 780, rest),
        lambda canvas: draw_rows(canvas, 780, rest),
    )
    assert headers == [f"| {rows[0][0]} | {rows[0][1]} |"] * 3


def test_another_table_on_the_next_page_keeps_its_header(tmp_path: Path) -> None:
    other_rows = [["month", "rain"], ["May", "31"], ["June", "12"]]
    assert list_headers(
        tmp_path,
        lambda canvas: draw_rows(canvas, 200, NUMBERS),
        lambda canvas: draw_rows(canvas, 780, other_rows),
    ) == ["| well | depth |", "| month | rain |"]


def test_text_between_tables_ends_the_table(tmp_path: Path) -> None:
    def second(canvas: Canvas) -> None:
        draw_lines(canvas, 80, 790, make_prose_lines("Between", 3), 10)
        draw_rows(canvas, 700, NUMBERS[1:])

    found = list_headers(tmp_path, lambda canvas: draw_rows(canvas, 200, NUMBERS), second)
    assert found == ["| well | depth |"]


def test_continuation_notice_does_not_end_the_table(tmp_path: Path) -> None:
    def second(canvas: Canvas) -> None:
        draw_lines(canvas, 80, 740, ["Table 2 (continued)"], 10)
        draw_rows(canvas, 690, NAMES[1:])

    assert (
        list_headers(tmp_path, lambda canvas: draw_rows(canvas, 200, NAMES), second)
        == ["| well | owner |"] * 2
    )


@pytest.mark.parametrize(
    "rows",
    [
        [["Item", "Price 2025"], ["seal", "12.50"], ["valve", "300.00"]],
        [["Region", "FY 2025"], ["north", "1,250"], ["south", "1,400"]],
        [["Country", "PM2.5"], ["Chile", "20.5"], ["Peru", "31.2"]],
        [["Term", "Meaning"], ["hull", "body of a ship"], ["keel", "spine of a ship"]],
        [["Month", "Q1"], ["May", "3,100"], ["June", "1,200"]],
    ],
)
def test_first_row_of_names_is_a_header(rows: list[list[str]]) -> None:
    assert has_header(rows, by_convention=True)


def test_spanning_names_are_repeated_above_their_columns(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", 10)
        xs, ys = [70, 150, 230, 310, 390, 470], [640, 660, 680, 700, 720]
        for y in ys:
            canvas.line(xs[0], y, xs[-1], y)
        for x in xs:
            canvas.line(x, ys[0], x, ys[-1] if x in (70, 150, 310, 470) else ys[-2])
        for x, y, words in [
            (205, 705, "year 2025"),
            (365, 705, "year 2026"),
            (75, 685, "part"),
            *((155 + 80 * i, 685, name) for i, name in enumerate(("Q1", "Q2", "Q1", "Q2"))),
            (75, 665, "seal"),
            *((155 + 80 * i, 665, str(13 + i)) for i in range(4)),
            (75, 645, "valve"),
            *((155 + 80 * i, 645, str(23 + i)) for i in range(4)),
        ]:
            canvas.drawString(x, y, words)

    found = parse_drawn_pdf(tmp_path, draw)
    assert found.markdown.split("\n")[:4] == [
        "|  | year 2025 | year 2025 | year 2026 | year 2026 |",
        "| part | Q1 | Q2 | Q1 | Q2 |",
        "| --- | --- | --- | --- | --- |",
        "| seal | 13 | 14 | 15 | 16 |",
    ]


@pytest.mark.parametrize(
    ("upper", "lower", "text"),
    [
        (
            "The deposit of the upper basin amounts",
            "to 6,250 euros.",
            "The deposit of the upper basin amounts to 6,250 euros.",
        ),
        (
            "The keeper looks after the yearly mainte-",
            "nance of the gate.",
            "The keeper looks after the yearly maintenance of the gate.",
        ),
        (
            "The keeper has the keys of the north gate,",
            "Lock 4 and the store.",
            "The keeper has the keys of the north gate, Lock 4 and the store.",
        ),
        (
            "The keeper has the keys of the north gate.",
            "the store is open.",
            "The keeper has the keys of the north gate.",
        ),
        (
            "The keeper has the keys of the north gate",
            "The store is open.",
            "The keeper has the keys of the north gate",
        ),
    ],
)
def test_sentence_continues_across_a_page_break(
    tmp_path: Path, upper: str, lower: str, text: str
) -> None:
    found = parse_drawn_pdf(
        tmp_path,
        draw_on_pages(
            lambda canvas: draw_lines(canvas, 60, 300, [upper], 10),
            lambda canvas: draw_lines(canvas, 60, 700, [lower], 10),
        ),
        pages=2,
    )
    assert list_blocks(found)[0] == ("paragraph", text)


def test_running_header_close_to_the_text_is_not_part_of_its_sentence(tmp_path: Path) -> None:
    names = ["alder", "birch", "cedar", "damson"]
    numbers = iter(range(4))

    def draw(canvas: Canvas) -> None:
        number = next(numbers)
        name = names[number]
        draw_lines(canvas, 60, 790, [f"Handbook of the lock, part {number}"], 10)
        draw_lines(canvas, 60, 776, [f"to five {name} boats of the harbour."], 10)
        draw_lines(canvas, 60, 600, [f"The deposit of the {name} basin then amounts"], 10)

    found = parse_drawn_pdf(tmp_path, draw, pages=4)
    # Once, before the text that it is no part of.
    assert found.markdown.startswith("Handbook of the lock, part\n\n")
    assert found.markdown.count("Handbook") == 1
    assert "alder basin then amounts to five birch boats of the harbour." in found.markdown


# Running headers and footers: kept once where they say what no other place does.

TOP, MIDDLE, BOTTOM = (0.1, 0.02, 0.9, 0.05), (0.1, 0.3, 0.9, 0.5), (0.1, 0.95, 0.9, 0.98)


def build_pages(
    headers: list[str], footers: list[str] | None = None, body: str = "The boat leaves the basin."
) -> list[ParsedBlock]:
    blocks = []
    for page, header in enumerate(headers, 1):
        blocks.append(ParsedBlock("paragraph", header, page=page, box=TOP))
        blocks.append(ParsedBlock("paragraph", f"{body} Part {page}.", page=page, box=MIDDLE))
        if footers:
            blocks.append(ParsedBlock("paragraph", footers[page - 1], page=page, box=BOTTOM))
    return blocks


def list_kept(blocks: list[ParsedBlock]) -> list[str]:
    return [block.text for block in remove_running_headers(blocks) if block.box != MIDDLE]


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        (["Safety sheet S-14, revision 9"] * 5, ["Safety sheet S-14, revision 9"]),
        (
            [f"Ficha técnica, versão 4.2 – página {page} de 5" for page in range(1, 6)],
            ["Ficha técnica, versão 4.2"],
        ),
        (
            [
                f"Prüfbericht Nr. 7731 | Stand 2. Mai 2026 | Seite {page} von 4"
                for page in range(1, 5)
            ],
            ["Prüfbericht Nr. 7731 | Stand 2. Mai 2026"],
        ),
        (
            [f"{page} Manuel de bord, édition 12" for page in range(11, 15)],
            ["Manuel de bord, édition 12"],
        ),
        (
            [f"Charter, rev. B {numeral}" for numeral in ("i", "ii", "iii", "iv")],
            ["Charter, rev. B"],
        ),
        # The rates that apply change within the document.
        (["Rates of 2025"] * 3 + ["Rates of 2026"] * 3, ["Rates of 2025", "Rates of 2026"]),
    ],
)
def test_header_that_says_something_new_is_kept_once(headers: list[str], kept: list[str]) -> None:
    assert list_kept(build_pages(headers)) == kept
    assert list_kept(build_pages(["Quay"] * len(headers), headers)) == ["Quay", *kept]


@pytest.mark.parametrize(
    "headers",
    [
        ["THE BOAT LEAVES the basin"] * 4,
        [f"Page {page}" for page in range(1, 5)],
        [f"Seite {page} von 4" for page in range(1, 5)],
        ["– the basin –"] * 4,
        # In another order.
        ["Basin: the boat"] * 4,
    ],
)
def test_header_that_repeats_the_text_or_counts_pages_is_dropped(headers: list[str]) -> None:
    assert list_kept(build_pages(headers)) == []


def test_kept_header_is_a_paragraph_before_all_other_text() -> None:
    blocks = build_pages(["Revision 9"] * 4)
    for block in blocks[::2]:
        block.kind, block.size = "heading", 30.0
    first = remove_running_headers(blocks)[0]
    assert (first.kind, first.text, first.page, first.box) == ("paragraph", "Revision 9", 1, TOP)


def test_header_of_another_number_on_each_page_is_kept_once() -> None:
    headers = [f"Order {number} of the mill" for number in (7, 31, 5, 88, 12)]
    assert list_kept(build_pages(headers)) == ["Order 7 of the mill"]


# The first row of a table is its header only if it is marked as one.

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


@pytest.mark.parametrize(
    ("name", "shown"), [("Name", "Name"), ("a --> b", "a - -> b")], ids=["count", "comment end"]
)
def test_csv_summary_is_one_comment_with_row_count(name: str, shown: str) -> None:
    blocks = read_csv(f"{name};Qty\nApple;3\n".encode()).blocks
    (summary,) = (block.text for block in blocks if block.kind == "summary")
    assert summary == f"<!-- 1 row, 2 columns. Columns: {shown}, Qty. -->"
