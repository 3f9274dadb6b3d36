"""PDF pages as people lay them out: columns, tables with and without lines, headings, running
headers, turned pages.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from engines.layout.text_blocks import join_lines
from engines.layout.text_runs import join_spaced_line
from engines.parse import text
from engines.parse.assembly import assemble_transcript
from engines.parsed_blocks import ParsedBlock, ParsedPart, format_table
from schemas.values import Transcript
from tests.unit.engines_parse.drawn_pdfs import (
    PROSE_WORDS,
    draw_lines,
    list_blocks,
    make_prose_lines,
    parse_drawn_pdf,
)

WIDTH, HEIGHT = A4


def sort_by_position(found: Transcript, *words: str) -> list[str]:
    return sorted(words, key=found.markdown.index)


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("rowwise", [False, True])
def test_pdf_columns_are_read_in_reading_order(tmp_path: Path, columns: int, rowwise: bool) -> None:
    """Sort by position, whatever the order in the file."""

    def draw(canvas: Canvas) -> None:
        texts = [make_prose_lines(f"COLUMN{i}", 14) for i in range(columns)]
        width = (WIDTH - 80) / columns
        size = 0.04 * width
        if rowwise:
            for line in range(14):
                for i in range(columns):
                    draw_lines(
                        canvas, 40 + i * width, 700 - 1.3 * size * line, [texts[i][line]], size
                    )
        else:
            for i in range(columns):
                draw_lines(canvas, 40 + i * width, 700, texts[i], size)
        draw_lines(
            canvas,
            40,
            760,
            ["TITLE of the whole page, set across all of its columns and a good deal larger"],
            12,
        )

    found = parse_drawn_pdf(tmp_path, draw)
    marks = ["TITLE", *(f"COLUMN{i}" for i in range(columns))]
    assert sort_by_position(found, *marks) == marks
    for i in range(columns):
        text = next(text for _, text in list_blocks(found) if text.startswith(f"COLUMN{i}"))
        assert text == " ".join([f"COLUMN{i}", *(PROSE_WORDS * 3)][: 14 * 7])


TABLE_ROWS = [
    ["part", "price", "in stock"],
    ["seal", "12.50", "yes"],
    ["inlet valve", "300.00", "no"],
    ["gauge", "8.75", "yes"],
]
TABLE_MARKDOWN = (
    "| part | price | in stock |\n| --- | --- | --- |\n| seal | 12.50 | yes |\n"
    "| inlet valve | 300.00 | no |\n| gauge | 8.75 | yes |"
)


def draw_table(canvas: Canvas, top: float) -> None:
    canvas.setFont("Helvetica", 10)
    for i, row in enumerate(TABLE_ROWS):
        for j, cell in enumerate(row):
            canvas.drawString(80 + 120 * j, top - 16 * i, cell)


def test_unruled_table_is_detected_by_column_gaps(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        draw_lines(canvas, 60, 760, make_prose_lines("Before", 4), 10)
        draw_table(canvas, 680)
        draw_lines(canvas, 60, 600, make_prose_lines("After", 4), 10)

    assert [
        (kind, text)
        for kind, text in list_blocks(parse_drawn_pdf(tmp_path, draw))
        if kind == "table"
    ] == [("table", TABLE_MARKDOWN)]


def test_ruling_lines_delimit_table_cells(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.grid([70, 190, 310, 430], [600, 640, 680, 720])
        canvas.setFont("Helvetica", 10)
        for x, y, words in [
            (75, 705, "part"),
            (195, 705, "price of one"),
            (195, 690, "piece"),
            (315, 705, "note"),
            (75, 665, "seal"),
            (195, 665, "12"),
            (315, 665, "to be changed"),
            (315, 652, "every year"),
            (75, 625, "valve"),
            (195, 625, "300"),
            (315, 625, "none"),
        ]:
            canvas.drawString(x, y, words)

    assert list_blocks(parse_drawn_pdf(tmp_path, draw)) == [
        (
            "table",
            (
                "| part | price of one piece | note |\n| --- | --- | --- |\n"
                "| seal | 12 | to be changed every year |\n| valve | 300 | none |"
            ),
        )
    ]


def test_two_columns_of_short_cells_are_a_table(tmp_path: Path) -> None:
    names = [
        "Rua Augusta, no cruzamento",
        "Praia do Forte, junto ao farol",
        "Lagoa do Abaeté, margem norte",
        "Rio Vermelho, atrás da igreja",
        "Porto da Barra, na rampa",
    ]

    def draw(canvas: Canvas) -> None:
        for i, name in enumerate(names * 2):
            draw_lines(canvas, 60, 700 - 16 * i, [name], 10)
            draw_lines(canvas, 300, 700 - 16 * i, [f"Posto de coleta número {i}"], 10)

    kind, text = list_blocks(parse_drawn_pdf(tmp_path, draw))[0]
    assert kind == "table"
    assert text.count("\n") == 10


def test_headings_paragraphs_and_lists_are_distinguished(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        draw_lines(canvas, 60, 780, ["Maintenance"], 20)
        draw_lines(canvas, 60, 740, ["1.1 Weekly work"], 14, "Helvetica-Bold")
        draw_lines(canvas, 60, 710, make_prose_lines("First", 4), 10)
        draw_lines(canvas, 60, 640, make_prose_lines("Second", 3), 10)
        draw_lines(canvas, 60, 590, ["• oil the pump", "• look at the gauge"], 10)
        draw_lines(canvas, 60, 550, ["Notes"], 10, "Helvetica-Bold")
        draw_lines(canvas, 60, 530, make_prose_lines("Third", 3), 10)

    found = parse_drawn_pdf(tmp_path, draw)
    assert [kind for kind, _ in list_blocks(found)] == [
        "heading",
        "heading",
        "paragraph",
        "paragraph",
        "list",
        "heading",
        "paragraph",
    ]
    assert [text for kind, text in list_blocks(found) if kind in ("heading", "list")] == [
        "# Maintenance",
        "## 1.1 Weekly work",
        "- oil the pump\n- look at the gauge",
        "### Notes",
    ]


def test_monospaced_passage_is_code_unless_whole_page_is(tmp_path: Path) -> None:
    program = ["for pump in pumps:", "    if pump.is_dry():", "        pump.stop()"]

    def mixed(canvas: Canvas) -> None:
        draw_lines(canvas, 60, 760, make_prose_lines("First", 6), 10)
        draw_lines(canvas, 60, 640, program, 10, "Courier")

    def typed(canvas: Canvas) -> None:
        draw_lines(canvas, 60, 760, make_prose_lines("First", 6), 10, "Courier")

    assert list_blocks(parse_drawn_pdf(tmp_path, mixed))[1] == (
        "code",
        "```\n" + "\n".join(program) + "\n```",
    )
    assert [kind for kind, _ in list_blocks(parse_drawn_pdf(tmp_path, typed))] == ["paragraph"]


def test_running_headers_are_kept_once_and_page_numbers_dropped(tmp_path: Path) -> None:
    numbers = iter(range(1, 100))

    def draw(canvas: Canvas) -> None:
        number = next(numbers)
        draw_lines(canvas, 60, 810, [f"Handbook of pumps, edition {number}"], 8)
        draw_lines(canvas, 60, 700, make_prose_lines(f"Page{number}", 5), 10)
        draw_lines(canvas, 290, 30, [f"- {number} -"], 8)

    found = parse_drawn_pdf(tmp_path, draw, pages=4)
    assert [text.split()[0] for _, text in list_blocks(found)] == [
        "Handbook",
        "Page1",
        "Page2",
        "Page3",
        "Page4",
    ]


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
def test_rotated_text_is_read_with_its_visible_bounding_box(
    tmp_path: Path, angle: int, rotate: int
) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.translate(WIDTH / 2, HEIGHT / 2)
        canvas.rotate(angle)
        draw_lines(canvas, -150, 40, make_prose_lines("Turned", 3), 10)

    found = parse_drawn_pdf(tmp_path, draw, rotate=rotate)
    assert found.markdown == " ".join(["Turned", *PROSE_WORDS][:21])
    box = found.blocks[0].span.box
    assert box
    wide = box[2] - box[0] > box[3] - box[1]
    assert wide == ((angle + rotate) % 180 == 0)


@pytest.mark.parametrize(
    ("stated", "title"),
    [
        ("The Pump Book", "The Pump Book"),
        ("Untitled", None),
        ("Microsoft Word - a.doc", None),
        ("scan_17.pdf", None),
        ("", None),
    ],
)
def test_generated_pdf_title_is_ignored(tmp_path: Path, stated: str, title: str | None) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setTitle(stated)
        draw_lines(canvas, 60, 760, make_prose_lines("First", 3), 10)

    assert parse_drawn_pdf(tmp_path, draw).title == title


# Words whose letters are set apart are words.


def draw_spaced(canvas: Canvas, y: float, words: str, spacing: float) -> None:
    line = canvas.beginText(72, y)
    line.setFont("Helvetica", 11)
    line.setCharSpace(spacing)
    line.textOut(words)
    canvas.drawText(line)


@pytest.mark.parametrize(
    "words",
    ["TOTAL DUE 1,940 EUROS", "Valor do aluguel", "Gesamtbetrag 12.300 Euro", "AX-4410 Révision 9"],
)
@pytest.mark.parametrize("spacing", [3.0, 4.0, 7.0])
def test_letters_set_apart_in_pdf_are_joined(tmp_path: Path, words: str, spacing: float) -> None:
    def draw(canvas: Canvas) -> None:
        draw_spaced(canvas, 760, words, spacing)
        draw_lines(canvas, 72, 700, ["The gate opens at 7:40 each morning."], 11)

    assert words in parse_drawn_pdf(tmp_path, draw).markdown


def test_letters_placed_one_by_one_are_joined_by_their_gaps(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", 11)
        x = 72.0
        for letter in "DEPOSIT DUE":
            if letter != " ":
                canvas.drawString(x, 760, letter)
            x += canvas.stringWidth(letter, "Helvetica", 11) + 4
        draw_lines(canvas, 72, 700, ["The gate opens at 7:40 each morning."], 11)

    assert "DEPOSIT DUE" in parse_drawn_pdf(tmp_path, draw).markdown


@pytest.mark.parametrize("line", ["- - - - - - -", "A B C D E F", "1 2 3 4 5 6", ". . . . . . . 5"])
def test_rulings_and_lists_of_letters_stay_apart(tmp_path: Path, line: str) -> None:
    def draw(canvas: Canvas) -> None:
        draw_lines(canvas, 72, 760, [line], 11)
        draw_lines(canvas, 72, 700, ["The gate opens at 7:40 each morning."], 11)

    assert line in parse_drawn_pdf(tmp_path, draw).markdown
    assert join_spaced_line(line) == line


@pytest.mark.parametrize(
    ("line", "joined"),
    [
        ("T O T A L", "TOTAL"),
        ("T O T A L   D U E  is below", "TOTAL DUE  is below"),
        ("== A V I S O  I M P O R T A N T E ==", "== AVISO IMPORTANTE =="),
        ("the W i n t e r  p r i c e s of 2026", "the Winter prices of 2026"),
        ("plan a b c of x y z", "plan a b c of x y z"),
        ("| a | b | c | d |", "| a | b | c | d |"),
    ],
)
def test_letters_typed_apart_are_joined(line: str, joined: str) -> None:
    assert join_spaced_line(line) == joined
    (block,) = text.read(line.encode()).blocks
    assert block.text == joined


# Hyphens at the ends of lines, decided by the words of the document.


def join(*lines: str, elsewhere: str = "") -> str:
    """Join the lines in a document that also has the text `elsewhere`."""
    blocks = [ParsedBlock("paragraph", join_lines(lines)), ParsedBlock("paragraph", elsewhere)]
    return assemble_transcript([ParsedPart(blocks=blocks)], pages=None).markdown.split("\n\n")[0]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("the seal AX-", "400 fits"), "the seal AX-400 fits"),
        (("filter KX-7-", "20 fits"), "filter KX-7-20 fits"),
        (("type B-", "x fits"), "type B-x fits"),
        (("the non-", "EU depot"), "the non-EU depot"),
        (("the Haupt-", "Bahnhof"), "the Haupt-Bahnhof"),
        (("within twenty-", "one days"), "within twenty-one days"),
        (("the years 1990-", "1995 are"), "the years 1990-1995 are"),
        (("a well-", "known supplier"), "a well-known supplier"),
        (("the pre-", "and postwar years"), "the pre- and postwar years"),
        (("open daily -", "bring a hat"), "open daily - bring a hat"),
        (("its mainte-", "nance costs"), "its maintenance costs"),
        (("its mainte\xad", "nance 4\xad", "00"), "its maintenance 400"),
        (("a manuten\u2010", "ção anual"), "a manutenção anual"),
        (("o guarda-", "-chuva e disse-", "-lhe"), "o guarda-chuva e disse-lhe"),
        (("a taxa de 3-", "-5 euros"), "a taxa de 3- -5 euros"),
    ],
)
def test_hyphen_is_kept_in_codes_and_compounds(lines: tuple[str, ...], text: str) -> None:
    assert join(*lines) == text


@pytest.mark.parametrize(
    ("elsewhere", "text"),
    [
        ("The workhour is paid.", "a workhour"),
        ("The work-hour is paid.", "a work-hour"),
        ("Two work-hours, each hour of work.", "a work-hour"),
        ("Nothing of the kind.", "a workhour"),
    ],
)
def test_document_decides_about_hyphen(elsewhere: str, text: str) -> None:
    assert join("a work-", "hour", elsewhere=elsewhere) == text


def test_header_of_table_ends_at_its_rows_after_joining() -> None:
    text, end, _ = format_table([[join_lines(["mainte-", "nance"]), "price"], ["yearly", "5"]])
    part = ParsedPart(blocks=[ParsedBlock("table", text, header_end=end)])
    found = assemble_transcript([part], pages=None)
    assert found.markdown[: found.blocks[0].header_end] == "| maintenance | price |\n| --- | --- |"
