"""Raised, lowered and struck text of PDF pages."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import FreeText, Highlight, Text
from pypdf.generic import (
    ArrayObject,
    DecodedStreamObject,
    DictionaryObject,
    FloatObject,
    NameObject,
    RectangleObject,
    TextStringObject,
)
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from engines.parse import pdf
from engines.parse.assembly import assemble_transcript
from engines.parse.notices import keep_hidden_text
from schemas.values import Transcript
from tests.unit.engines_parse.drawn_pdfs import draw_lines, make_prose_lines, parse_drawn_pdf
from tests.unit.engines_parse.sample_files import render_text_image

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
    writer.write(tmp_path / "x.pdf")
    found = assemble_transcript([pdf.read(tmp_path / "x.pdf", range(1, 2))], pages=1)
    assert found.markdown == "Costs ~~90 euros,~~ or 72 euros"


# Form values, notes and embedded files of a PDF.


def parse_changed_pdf(tmp_path: Path, change: Callable[[PdfWriter], object]) -> Transcript:
    out = io.BytesIO()
    canvas = Canvas(out)
    draw_lines(canvas, 60, 700, ["Contract of the north quay and its cranes."], 11)
    canvas.save()
    writer = PdfWriter(clone_from=PdfReader(out))
    change(writer)
    writer.write(tmp_path / "x.pdf")
    return assemble_transcript([pdf.read(tmp_path / "x.pdf", range(1, 2))], pages=1)


def test_form_values_stand_beside_their_labels(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        draw_lines(canvas, 60, 760, ["Application for a berth in the basin"], 11)
        for i, label in enumerate(["Boat name:", "Insured:", "Trailer:", "Berth:", "Harbour:"]):
            draw_lines(canvas, 60, 700 - 40 * i, [label], 11)
        form = canvas.acroForm
        form.textfield(name="a", x=140, y=694, width=200, height=20, value="Gaivota II")
        form.checkbox(name="b", x=140, y=656, size=14, checked=True)
        form.checkbox(name="c", x=140, y=616, size=14, checked=False)
        form.radio(name="d", value="east", selected=True, x=140, y=576, size=14)
        form.radio(name="d", value="west", selected=False, x=160, y=576, size=14)
        form.choice(
            name="e", x=140, y=534, width=90, height=20, value="Lagos", options=["Lagos", "Faro"]
        )

    markdown = " ".join(parse_drawn_pdf(tmp_path, draw).markdown.split())
    for pair in (
        "Boat name: Gaivota II",
        "Insured: [x]",
        "Trailer: [ ]",
        "Berth: [x] [ ]",
        "Harbour: Lagos",
    ):
        assert pair in markdown


def test_password_field_is_not_read(tmp_path: Path) -> None:
    def draw(canvas: Canvas) -> None:
        draw_lines(canvas, 60, 700, ["Password of the gate:"], 11)
        canvas.acroForm.textfield(
            name="a", x=180, y=694, width=200, height=20, value="sesame", fieldFlags="password"
        )

    assert "sesame" not in parse_drawn_pdf(tmp_path, draw).markdown


@pytest.mark.parametrize(
    ("note", "is_read"),
    [
        (FreeText(text="Fee agreed: 1,480 euros.", rect=(60, 600, 300, 640)), True),
        (Text(text="Fee agreed: 1,480 euros.", rect=(60, 600, 80, 620)), True),
        (FreeText(text="Fee agreed: 1,480 euros.", rect=(60, 600, 300, 640)), False),
    ],
)
def test_shown_notes_are_read(tmp_path: Path, note: FreeText | Text, is_read: bool) -> None:
    if not is_read:
        note.flags = 2  # hidden
    found = parse_changed_pdf(tmp_path, lambda writer: writer.add_annotation(0, note))
    assert ("Fee agreed: 1,480 euros." in found.markdown) == is_read


def test_embedded_files_are_sections_after_the_pages(tmp_path: Path) -> None:
    def embed(writer: PdfWriter) -> None:
        writer.add_attachment("tariff 2026.txt", b"The fee is 5 euros.")
        writer.add_attachment("plan.dwg", b"\x00\x01\x02\x03")

    found = parse_changed_pdf(tmp_path, embed)
    section = found.markdown.index("Attachment: tariff 2026.txt")
    assert section < found.markdown.index("The fee is 5 euros.")
    assert [(notice.code, "plan.dwg" in notice.detail) for notice in found.warnings] == [
        ("ATTACHMENT_NOT_INDEXED", True)
    ]


def _add_xfa(writer: PdfWriter, content: bytes) -> None:
    stream = DecodedStreamObject()
    stream.set_data(content)
    parts = ArrayObject([TextStringObject("datasets"), writer._add_object(stream)])
    form = DictionaryObject({NameObject("/XFA"): parts, NameObject("/Fields"): ArrayObject()})
    writer._root_object[NameObject("/AcroForm")] = writer._add_object(form)


def test_values_of_an_xfa_form_are_read(tmp_path: Path) -> None:
    content = (
        b'<xfa:datasets xmlns:xfa="http://www.xfa.org/schema/xfa-data/1.0/"><xfa:data><form>'
        b"<boat>Gaivota III</boat><berth>B7</berth></form></xfa:data></xfa:datasets>"
    )
    found = parse_changed_pdf(tmp_path, lambda writer: _add_xfa(writer, content))
    assert "- boat: Gaivota III\n- berth: B7" in found.markdown


def test_entities_of_an_xfa_form_are_not_expanded(tmp_path: Path) -> None:
    content = (
        b'<!DOCTYPE d [<!ENTITY a SYSTEM "file:///etc/passwd"><!ENTITY b "bomb">]>'
        b"<d><v>&a;&b;</v></d>"
    )
    found = parse_changed_pdf(tmp_path, lambda writer: _add_xfa(writer, content))
    assert found.markdown == "Contract of the north quay and its cranes."


# Text that a reader of the PDF cannot see.

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
    path = tmp_path / "x.pdf"
    writer.write(path)
    found = assemble_transcript([pdf.read(path, range(1, 2))], pages=1)
    assert found.markdown == "The fee is 530 euros."
    with keep_hidden_text(True):
        kept = assemble_transcript([pdf.read(path, range(1, 2))], pages=1)
    assert "It was 510." in kept.markdown
    assert kept.warnings == []
