"""Broken and malicious files, made on the fly."""

from __future__ import annotations

import io
import zipfile

from pypdf import PdfReader, PdfWriter
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas


def make_pdf(pages: int = 1, text: str = "A page about herons.") -> bytes:
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=A4)
    for number in range(pages):
        canvas.drawString(72, 720, f"{text} {number + 1}")
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def make_encrypted_pdf() -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(make_pdf())))
    writer.encrypt("secret", algorithm="AES-256-R5")
    return _write_to_bytes(writer)


def make_empty_pdf() -> bytes:
    return _write_to_bytes(PdfWriter())


def make_blank_pdf(pages: int) -> bytes:
    writer = PdfWriter()
    for _ in range(pages):
        writer.add_blank_page(200, 200)
    return _write_to_bytes(writer)


def make_zip_bomb(megabytes: int = 2_000) -> bytes:
    """Make a DOCX whose only part expands to far more than its declared size."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        with archive.open("word/document.xml", "w", force_zip64=True) as part:
            for _ in range(megabytes):
                part.write(b"\x00" * 1_000_000)
    return buffer.getvalue()


def _write_to_bytes(writer: PdfWriter) -> bytes:
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()
