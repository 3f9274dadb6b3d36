"""Render PDF files with a text layer or from page images (reportlab). The same input gives the same
bytes.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle, getSampleStyleSheet
from reportlab.lib.units import cm
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen import canvas
from reportlab.platypus import Flowable, ListFlowable, Paragraph, SimpleDocTemplate, Spacer, Table

from samples.renderers.blocks import SampleBlock

BODY = ParagraphStyle(
    "body",
    parent=getSampleStyleSheet()["BodyText"],
    fontName="Helvetica",
    fontSize=11,
    leading=16,
    spaceAfter=8,
)
CELL = ParagraphStyle("cell", parent=BODY, fontSize=9.5, leading=12, spaceAfter=0)
HEADINGS = {
    1: ParagraphStyle(
        "h1", parent=BODY, fontName="Helvetica-Bold", fontSize=20, leading=26, spaceAfter=14
    ),
    2: ParagraphStyle(
        "h2",
        parent=BODY,
        fontName="Helvetica-Bold",
        fontSize=14,
        leading=20,
        spaceBefore=14,
        spaceAfter=6,
        keepWithNext=True,
    ),
}


def render_text_pdf(blocks: Sequence[SampleBlock], title: str) -> bytes:
    out = io.BytesIO()
    document = SimpleDocTemplate(
        out,
        pagesize=A4,
        title=title,
        author="Anabranch samples",
        invariant=1,
        leftMargin=2.4 * cm,
        rightMargin=2.4 * cm,
    )
    document.build(
        [flowable for block in blocks for flowable in _build_flowables(block)],
        onFirstPage=_draw_page_number,
        onLaterPages=_draw_page_number,
    )
    return out.getvalue()


def render_image_pdf(pages: Sequence[bytes], title: str) -> bytes:
    """Render one JPEG per page, without text."""
    out = io.BytesIO()
    drawing = canvas.Canvas(out, pagesize=A4, invariant=1)
    drawing.setTitle(title)
    for page in pages:
        drawing.drawImage(ImageReader(io.BytesIO(page)), 0, 0, *A4)
        drawing.showPage()
    drawing.save()
    return out.getvalue()


def _build_flowables(block: SampleBlock) -> list[Flowable]:
    match block.kind:
        case "heading":
            return [Paragraph(block.text, HEADINGS[block.level])]
        case "list":
            return [
                ListFlowable(
                    [Paragraph(item, BODY) for (item,) in block.rows],
                    bulletType="bullet",
                    start="•",
                )
            ]
        case "table":
            return [_build_table(block.rows), Spacer(1, 10)]
        case _:
            return [Paragraph(block.text, BODY)]


def _build_table(rows: list[list[str]]) -> Table:
    cells = [
        [Paragraph(f"<b>{cell}</b>" if row == 0 else cell, CELL) for cell in line]
        for row, line in enumerate(rows)
    ]
    return Table(
        cells,
        repeatRows=1,
        style=[("GRID", (0, 0), (-1, -1), 0.5, colors.grey), ("VALIGN", (0, 0), (-1, -1), "TOP")],
    )


def _draw_page_number(drawing: canvas.Canvas, document: SimpleDocTemplate) -> None:
    drawing.setFont("Helvetica", 9)
    drawing.drawCentredString(A4[0] / 2, 1.2 * cm, str(document.page))
