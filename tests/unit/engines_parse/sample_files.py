"""One small document in every format, and files that are broken in one way each."""

from __future__ import annotations

import csv
import html
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import openpyxl
from docx import Document
from pypdf import PdfReader, PdfWriter
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

Rows = list[list[str]]


@dataclass
class Section:
    """A section: a heading, paragraphs, and optionally a table with a header row."""

    heading: str
    paragraphs: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=list)


def render_text(parts: list[Section]) -> bytes:
    return "\n\n".join(
        block for part in parts for block in [part.heading, *part.paragraphs]
    ).encode()


def render_markdown(parts: list[Section]) -> bytes:
    blocks: list[str] = []
    for part in parts:
        blocks += [f"# {part.heading}", *part.paragraphs]
        if part.rows:
            lines = [
                "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
                for row in part.rows
            ]
            blocks.append("\n".join([lines[0], "|" + "---|" * len(part.rows[0]), *lines[1:]]))
    return "\n\n".join(blocks).encode()


def render_html(parts: list[Section]) -> bytes:
    body = ""
    for i, part in enumerate(parts):
        body += f'<h2 id="part-{i}">{html.escape(part.heading)}</h2>' + "".join(
            f"<p>{html.escape(words)}</p>" for words in part.paragraphs
        )
        if part.rows:
            head, *rest = part.rows
            cells = "".join(
                "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
                for row in rest
            )
            body += (
                "<table><tr>"
                + "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
                + f"</tr>{cells}</table>"
            )
    return (
        "<!doctype html><html lang=en><head><title>T</title></head><body><nav>Home</nav>"
        f"<main>{body}</main><footer>Imprint</footer></body></html>"
    ).encode()


def render_docx(parts: list[Section]) -> bytes:
    document = Document()
    for part in parts:
        document.add_heading(part.heading, 1)
        for words in part.paragraphs:
            document.add_paragraph(words)
        if part.rows:
            table = document.add_table(len(part.rows), len(part.rows[0]))
            for cells, row in zip(table.rows, part.rows, strict=True):
                for cell, words in zip(cells.cells, row, strict=True):
                    cell.text = words
    return _save_to_bytes(document.save)


def render_xlsx(parts: list[Section]) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for i, part in enumerate(parts):
        sheet = book.create_sheet(f"Sheet {i}")
        for row in part.rows or [[part.heading, *part.paragraphs]]:
            sheet.append(row)
    return _save_to_bytes(book.save)


def render_csv(parts: list[Section]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    for part in parts:
        writer.writerows(part.rows or [[part.heading, *part.paragraphs]])
    return out.getvalue().encode()


def render_pdf(parts: list[Section]) -> bytes:
    styles = getSampleStyleSheet()
    story = []
    for part in parts:
        story += [
            Paragraph(html.escape(part.heading), styles["Heading1"]),
            *(Paragraph(html.escape(words), styles["BodyText"]) for words in part.paragraphs),
        ]
        if part.rows:
            story += [
                Spacer(1, 12),
                Table(part.rows, style=TableStyle([("GRID", (0, 0), (-1, -1), 0.5, "black")])),
                Spacer(1, 12),
            ]
    out = io.BytesIO()
    SimpleDocTemplate(out, pagesize=A4).build(story)
    return out.getvalue()


RENDERERS = {
    "md": render_markdown,
    "txt": render_text,
    "html": render_html,
    "docx": render_docx,
    "csv": render_csv,
    "xlsx": render_xlsx,
    "pdf": render_pdf,
}


def render_numbered_pages(count: int) -> bytes:
    """Render a PDF of `count` pages with one line each."""
    return render_pages(count, lambda canvas: None)


def render_pages(count: int, draw_more: Callable[[Canvas], object]) -> bytes:
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    for i in range(count):
        canvas.drawString(72, 720, f"This is what stands on page number {i + 1} of the book.")
        canvas.showPage()
    draw_more(canvas)
    canvas.save()
    return out.getvalue()


def render_text_image(words: str, suffix: str = "png") -> bytes:
    """Draw black letters on white, large enough for any OCR engine."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (1000, 300), "white")
    ImageDraw.Draw(picture).text((40, 120), words, "black", ImageFont.load_default(44))
    out = io.BytesIO()
    picture.save(out, {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper()))
    return out.getvalue()


def render_scanned_pdf(words: str, text_pages: int = 0) -> bytes:
    """Render a PDF of `text_pages` pages with text, and a last page that shows `words`."""
    from reportlab.lib.utils import ImageReader

    image = ImageReader(io.BytesIO(render_text_image(words)))
    size = A4[0], A4[1] - 400
    return render_pages(text_pages, lambda canvas: canvas.drawImage(image, 0, 300, *size))


def render_encrypted_pdf() -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(render_numbered_pages(1))))
    writer.encrypt("secret", algorithm="AES-256")
    return _save_to_bytes(writer.write)


def render_empty_pdf() -> bytes:
    return _save_to_bytes(PdfWriter().write)


def make_archive_bomb(megabytes: int = 64) -> bytes:
    """Build a DOCX whose directory states its unpacked size."""
    return _zip({"[Content_Types].xml": b"<Types/>", "word/document.xml": bytes(megabytes * 2**20)})


def make_understated_archive_bomb(megabytes: int = 64) -> bytes:
    """Build a DOCX whose directory understates its unpacked size."""
    data = bytearray(make_archive_bomb(megabytes))
    size = (megabytes * 2**20).to_bytes(4, "little")
    while (at := data.find(size)) >= 0:
        data[at : at + 4] = (1000).to_bytes(4, "little")
    return bytes(data)


def make_archive_with_entries(entries: int) -> bytes:
    return _zip(
        {"[Content_Types].xml": b"<Types/>", "word/document.xml": b""}
        | {f"word/media/{i}": b"" for i in range(entries)}
    )


def _zip(entries: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return out.getvalue()


def _save_to_bytes(save: object) -> bytes:
    out = io.BytesIO()
    save(out)  # type: ignore[operator]
    return out.getvalue()


def write_file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path
