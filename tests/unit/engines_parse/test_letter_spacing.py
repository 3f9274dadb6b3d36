"""Words whose letters are set apart are words."""

from __future__ import annotations

from pathlib import Path

import pytest
from reportlab.pdfgen.canvas import Canvas

from engines.layout.letter_spacing import join_spaced_line
from engines.parse import text
from tests.unit.engines_parse.drawn_pdfs import draw_lines, parse_drawn_pdf


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
