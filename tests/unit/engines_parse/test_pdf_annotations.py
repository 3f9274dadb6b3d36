"""Form values, notes and embedded files of a PDF."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import FreeText, Text
from pypdf.generic import (
    ArrayObject,
    DecodedStreamObject,
    DictionaryObject,
    NameObject,
    TextStringObject,
)
from reportlab.pdfgen.canvas import Canvas

from engines.parse import pdf
from engines.parse.assembly import assemble_transcript
from schemas.values import Transcript
from tests.unit.engines_parse.drawn_pdfs import draw_lines, parse_drawn_pdf
from tests.unit.engines_parse.sample_files import write_file


def parse_changed_pdf(tmp_path: Path, change: Callable[[PdfWriter], object]) -> Transcript:
    out = io.BytesIO()
    canvas = Canvas(out)
    draw_lines(canvas, 60, 700, ["Contract of the north quay and its cranes."], 11)
    canvas.save()
    writer = PdfWriter(clone_from=PdfReader(out))
    change(writer)
    data = io.BytesIO()
    writer.write(data)
    return assemble_transcript(
        [pdf.read(write_file(tmp_path, "x.pdf", data.getvalue()), range(1, 2))], pages=1
    )


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
