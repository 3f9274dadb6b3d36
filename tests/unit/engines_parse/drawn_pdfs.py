"""PDFs drawn for tests, and what is read from them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from pypdf import PdfReader, PdfWriter
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from engines.parse import pdf
from engines.parse.assembly import assemble_transcript
from schemas.values import Transcript
from tests.unit.engines_parse.sample_files import write_file

PROSE_WORDS = [
    "the",
    "pump",
    "is",
    "oiled",
    "every",
    "week",
    "by",
    "the",
    "crew",
    "and",
    "it",
    "must",
    "never",
    "run",
    "dry",
    "because",
    "the",
    "seals",
    "wear",
    "out",
    "when",
    "there",
    "is",
    "no",
    "water",
    "in",
    "the",
    "casing",
    "which",
    "happens",
    "more",
    "often",
    "than",
    "one",
    "would",
    "think",
    "in",
    "summer",
    "when",
    "the",
    "level",
    "of",
    "the",
    "lake",
    "falls",
    "below",
    "the",
    "inlet",
    "and",
    "nobody",
    "looks",
    "at",
    "the",
    "gauge",
    "for",
    "days",
]


def make_prose_lines(first: str, count: int) -> list[str]:
    """Return the lines of a paragraph that starts with `first`."""
    words = [first, *(PROSE_WORDS * 3)]
    return [" ".join(words[i * 7 : i * 7 + 7]) for i in range(count)]


def parse_drawn_pdf(
    folder: Path, draw: Callable[[Canvas], None], pages: int = 1, rotate: int = 0
) -> Transcript:
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    for _ in range(pages):
        draw(canvas)
        canvas.showPage()
    canvas.save()
    data = out.getvalue()
    if rotate:
        writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
        for page in writer.pages:
            page.rotate(rotate)
        out = io.BytesIO()
        writer.write(out)
        data = out.getvalue()
    return assemble_transcript(
        [pdf.read(write_file(folder, "x.pdf", data), range(1, pages + 1))], pages=pages
    )


def draw_lines(
    canvas: Canvas, x: float, y: float, lines: list[str], size: float = 9, font: str = "Helvetica"
) -> None:
    canvas.setFont(font, size)
    for i, line in enumerate(lines):
        canvas.drawString(x, y - 1.3 * size * i, line)


def list_blocks(found: Transcript) -> list[tuple[str, str]]:
    return [
        (block.kind, found.markdown[block.span.char_start : block.span.char_end])
        for block in found.blocks
    ]
