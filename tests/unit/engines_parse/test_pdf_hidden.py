"""Text that a reader of the PDF cannot see."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.generic import RectangleObject
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from engines.parse import pdf
from engines.parse.assembly import assemble_transcript
from engines.parse.hidden_text import keep_hidden_text
from tests.unit.engines_parse.drawn_pdfs import (
    draw_lines,
    make_prose_lines,
    parse_drawn_pdf,
)
from tests.unit.engines_parse.sample_files import render_text_image, write_file

Draw = Callable[[Canvas], None]


def draw_white(canvas: Canvas) -> None:
    canvas.setFillGray(1)
    canvas.drawString(60, 600, "secret order")


def draw_black_on_black(canvas: Canvas) -> None:
    canvas.rect(50, 590, 200, 30, fill=1)
    canvas.drawString(60, 600, "secret order")


def draw_unpainted(canvas: Canvas) -> None:
    text = canvas.beginText(60, 600)
    text.setTextRenderMode(3)
    text.textLine("secret order")
    canvas.drawText(text)


def draw_tiny(canvas: Canvas) -> None:
    canvas.setFont("Helvetica", 0.5)
    canvas.drawString(60, 600, "secret order")


def draw_off_page(canvas: Canvas) -> None:
    canvas.drawString(700, 600, "secret order")


def draw_transparent(canvas: Canvas) -> None:
    canvas.setFillAlpha(0)
    canvas.drawString(60, 600, "secret order")


@pytest.mark.parametrize(
    "draw_secret",
    [draw_white, draw_black_on_black, draw_unpainted, draw_tiny, draw_off_page, draw_transparent],
)
@pytest.mark.parametrize("rotate", [0, 90])
def test_hidden_text_is_left_out_with_a_warning(
    tmp_path: Path, draw_secret: Draw, rotate: int
) -> None:
    def draw(canvas: Canvas) -> None:
        draw_lines(canvas, 60, 760, make_prose_lines("First", 4), 11)
        draw_secret(canvas)

    found = parse_drawn_pdf(tmp_path, draw, rotate=rotate)
    assert "First the pump" in found.markdown
    assert "secret" not in found.markdown
    assert [notice.code for notice in found.warnings] == ["HIDDEN_TEXT"]
    assert "page 1 (2 words)" in found.warnings[0].detail


def draw_white_on_dark(canvas: Canvas) -> None:
    canvas.setFillColorRGB(0.1, 0.2, 0.5)
    canvas.rect(50, 590, 200, 30, fill=1, stroke=0)
    canvas.setFillGray(1)
    canvas.drawString(60, 600, "plain order")


def draw_scan_with_layer(canvas: Canvas) -> None:
    image = ImageReader(io.BytesIO(render_text_image("plain order")))
    canvas.drawImage(image, 0, 560, 500, 150)
    text = canvas.beginText(20, 640)
    text.setTextRenderMode(3)
    text.setFont("Helvetica", 20)
    text.textLine("plain order")
    canvas.drawText(text)


def draw_light_grey(canvas: Canvas) -> None:
    canvas.setFillGray(0.82)
    canvas.drawString(60, 600, "plain order")


def draw_white_on_photo(canvas: Canvas) -> None:
    from PIL import Image

    canvas.drawImage(ImageReader(Image.new("RGB", (20, 20), (30, 90, 40))), 50, 580, 200, 60)
    draw_lines(canvas, 60, 660, ["Sign at the gate"], 11)
    canvas.setFillGray(1)
    canvas.drawString(60, 600, "plain order")


@pytest.mark.parametrize(
    "draw_text", [draw_white_on_dark, draw_scan_with_layer, draw_light_grey, draw_white_on_photo]
)
def test_visible_text_is_read(tmp_path: Path, draw_text: Draw) -> None:
    def draw(canvas: Canvas) -> None:
        draw_lines(canvas, 60, 760, make_prose_lines("First", 4), 11)
        draw_text(canvas)

    found = parse_drawn_pdf(tmp_path, draw)
    assert "plain order" in found.markdown
    assert found.warnings == []


def test_text_outside_the_crop_box_is_left_out(tmp_path: Path) -> None:
    out = io.BytesIO()
    canvas = Canvas(out)
    draw_lines(canvas, 60, 700, ["The fee is 530 euros.", "", "", "", "", "It was 510."], 11)
    canvas.save()
    writer = PdfWriter(clone_from=PdfReader(out))
    writer.pages[0].cropbox = RectangleObject((0, 680, 595, 842))
    data = io.BytesIO()
    writer.write(data)
    path = write_file(tmp_path, "x.pdf", data.getvalue())
    found = assemble_transcript([pdf.read(path, range(1, 2))], pages=1)
    assert found.markdown == "The fee is 530 euros."
    with keep_hidden_text(True):
        kept = assemble_transcript([pdf.read(path, range(1, 2))], pages=1)
    assert "It was 510." in kept.markdown
    assert kept.warnings == []
