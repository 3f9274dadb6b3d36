"""Tables that pages divide, tables of labels and values, and headers of two rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from engines.parsed_blocks import has_header
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
        [["Invoice number", "INV-2291"], ["Due date", "03/05/2026"], ["Total", "1,476.00"]],
        [["Name:", "Ana Reis"], ["Boat:", "Gaivota"], ["Berth:", "B7"]],
        [["Subtotal", "120.00"], ["VAT 23%", "27.60"], ["Total", "147.60"]],
        [["Order", "4471-22"], ["Delivered", "14:30"], ["Weight", "2.5 kg"], ["Note", "fragile"]],
        [["Phone", "+351 21 555 0188"], ["Postcode", "1200-309"], ["City", "Lisboa"]],
    ],
)
def test_labels_with_values_are_pairs(tmp_path: Path, rows: list[list[str]]) -> None:
    found = parse_drawn_pdf(tmp_path, lambda canvas: draw_rows(canvas, 700, rows))
    assert list_blocks(found) == [
        ("list", "\n".join(f"- {label.rstrip(':')}: {value}" for label, value in rows))
    ]


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
