"""Lines of text with boxes to Markdown blocks in reading order: one code path for text layers of PDFs and for lines that OCR found."""

from engines.layout.page_blocks import build_blocks, compute_pages_body_height
from engines.layout.text_runs import LayoutPage, LayoutWord, TextRun

__all__ = ["LayoutPage", "TextRun", "LayoutWord", "compute_pages_body_height", "build_blocks"]
