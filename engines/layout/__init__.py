"""Lines of text with boxes to Markdown blocks in reading order: one code path for text layers of PDFs and for lines that OCR found."""

from engines.layout.build import body_of, build
from engines.layout.runs import Page, Run, Word

__all__ = ["Page", "Run", "Word", "body_of", "build"]
