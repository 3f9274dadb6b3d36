"""Raised, lowered and struck text of PDF pages."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import Highlight
from pypdf.generic import ArrayObject, FloatObject, NameObject
from reportlab.pdfgen.canvas import Canvas

from engines.parse import pdf
from engines.parse.assembly import assemble_transcript
from tests.unit.engines_parse.drawn_pdfs import (
    draw_lines,
    make_prose_lines,
    parse_drawn_pdf,
)
from tests.unit.engines_parse.sample_files import write_file

Piece = tuple[str, float, float]
"""Text, rise and size."""


def draw_pieces(canvas: Canvas, y: float, *pieces: Piece, order: int = 1) -> None:
    """Draw pieces of text side by side, in the file's order or the reverse."""
    x, drawn = 60.0, []
    for text, rise, size in pieces:
        drawn.append((x, text, rise, size))
        x += canvas.stringWidth(text, "Helvetica", size)
    for x, text, rise, size in drawn[::order]:
        canvas.setFont("Helvetica", size)
        canvas.drawString(x, y + rise, text)


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([("about 10", 0, 11), ("6", 4, 7), (" litres", 0, 11)], "about 10⁶ litres"),
        ([("at 10", 0, 11), ("-3", 4, 7), (" bar", 0, 11)], "at 10⁻³ bar"),
        ([("a hall of 250 m", 0, 11), ("2", 4, 7), (".", 0, 11)], "a hall of 250 m²."),
        ([("pure H", 0, 11), ("2", -2, 7), ("O only", 0, 11)], "pure H₂O only"),
        ([("a fee of 4.2", 0, 11), ("1", 4, 7), (" a day", 0, 11)], "a fee of 4.2¹ a day"),
        ([("the 4", 0, 11), ("th", 4, 7), (" of May", 0, 11)], "the 4th of May"),
        ([("rate k", 0, 11), ("Q+R", 4, 7), (" holds", 0, 11)], "rate k^(Q+R) holds"),
        ([("Full", 0, 11), ("SIZE", 0, 7), (" caps", 0, 11)], "FullSIZE caps"),
    ],
)
def test_raised_and_lowered_text_is_not_joined_to_numbers(
    tmp_path: Path, pieces: list[Piece], text: str
) -> None:
    def draw(canvas: Canvas) -> None:
        draw_pieces(canvas, 760, *pieces)
        draw_lines(canvas, 60, 700, make_prose_lines("Body", 4), 11)

    assert text in parse_drawn_pdf(tmp_path, draw).markdown


@pytest.mark.parametrize("angle", [0, 90, 180, 270])
def test_raised_text_is_found_on_turned_pages(tmp_path: Path, angle: int) -> None:
    def draw(canvas: Canvas) -> None:
        canvas.translate(300, 420)
        canvas.rotate(angle)
        draw_pieces(canvas, 0, ("it holds 10", 0, 11), ("6", 4, 7), (" litres", 0, 11))

    assert parse_drawn_pdf(tmp_path, draw).markdown == "it holds 10⁶ litres"


def test_raised_digit_drawn_last_belongs_to_its_word(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        draw_pieces(canvas, 760, ("1,250", 0, 11), (" boats pay 10", 0, 11))
        draw_lines(canvas, 60, 700, make_prose_lines("Body", 4), 11)
        canvas.setFont("Helvetica", 7)
        canvas.drawString(60 + canvas.stringWidth("1,250", "Helvetica", 11), 764, "2")

    assert "1,250²" in parse_drawn_pdf(tmp_path, draw).markdown


@pytest.mark.parametrize("note_rise", [0, 3])
def test_mark_of_a_note_refers_to_the_note(tmp_path: Path, note_rise: float) -> None:
    def draw(canvas: Canvas) -> None:
        draw_pieces(
            canvas,
            760,
            ("A fee of 4.2", 0, 11),
            ("1", 4, 7),
            (" a day for 90 m", 0, 11),
            ("2", 4, 7),
        )
        draw_pieces(canvas, 745, ("and 1,250", 0, 11), ("2", 4, 7), (" boats.", 0, 11))
        draw_lines(canvas, 60, 700, make_prose_lines("Body", 6), 11)
        draw_pieces(canvas, 70, ("1", note_rise, 6), (" Without visitors.", 0, 8))
        draw_pieces(canvas, 60, ("2", note_rise, 6), (" Counted in the spring.", 0, 8))

    markdown = parse_drawn_pdf(tmp_path, draw).markdown
    assert "A fee of 4.2[^1] a day for 90 m² and 1,250[^2] boats." in markdown
    assert "\n\n[^1]: Without visitors.\n\n[^2]: Counted in the spring." in markdown


def _draw_rule(canvas: Canvas, x: float, y: float, width: float) -> None:
    canvas.line(x, y, x + width, y)


def _draw_bar(canvas: Canvas, x: float, y: float, width: float) -> None:
    canvas.rect(x, y, width, 0.6, stroke=0, fill=1)


@pytest.mark.parametrize("strike", [_draw_rule, _draw_bar])
@pytest.mark.parametrize("size", [7, 11, 24])
def test_line_through_words_marks_them_as_struck(
    tmp_path: Path, strike: Callable[[Canvas, float, float, float], None], size: float
) -> None:
    def draw(canvas: Canvas) -> None:
        draw_lines(canvas, 60, 760, ["Costs ninety euro 72 euros"], size)
        start = 60 + canvas.stringWidth("Costs ", "Helvetica", size)
        width = canvas.stringWidth("ninety euro", "Helvetica", size)
        strike(canvas, start, 760 + 0.3 * size, width)

    assert "Costs ~~ninety euro~~ 72 euros" in parse_drawn_pdf(tmp_path, draw).markdown


def test_underline_and_table_rule_are_not_strikes(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        draw_lines(canvas, 60, 760, ["Costs 72 euros", "and 9 litres"], 11)
        canvas.line(60, 758, 140, 758)
        canvas.line(60, 749, 400, 749)

    assert "~~" not in parse_drawn_pdf(tmp_path, draw).markdown


def test_strike_annotation_marks_its_words(tmp_path: Path) -> None:
    out = io.BytesIO()
    canvas = Canvas(out)
    draw_lines(canvas, 60, 700, ["Costs 90 euros, or 72 euros"], 11)
    start = 60 + canvas.stringWidth("Costs ", "Helvetica", 11)
    end = start + canvas.stringWidth("90 euros,", "Helvetica", 11)
    canvas.save()
    writer = PdfWriter(clone_from=PdfReader(out))
    quad = ArrayObject([FloatObject(v) for v in (start, 710, end, 710, start, 698, end, 698)])
    note = Highlight(rect=(start, 698, end, 710), quad_points=quad)
    note[NameObject("/Subtype")] = NameObject("/StrikeOut")
    writer.add_annotation(0, note)
    data = io.BytesIO()
    writer.write(data)
    part = pdf.read(write_file(tmp_path, "x.pdf", data.getvalue()), range(1, 2))
    found = assemble_transcript([part], pages=1)
    assert found.markdown == "Costs ~~90 euros,~~ or 72 euros"
