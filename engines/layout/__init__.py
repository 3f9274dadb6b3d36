"""Page layout: converts text runs with boxes, from PDF or OCR, to blocks in reading order."""

from engines.layout.reading_order import build_blocks, compute_pages_body_height
from engines.layout.text_runs import LayoutPage, LayoutWord, TextRun, find_running_lines

__all__ = [
    "find_running_lines",
    "LayoutPage",
    "TextRun",
    "LayoutWord",
    "compute_pages_body_height",
    "build_blocks",
]
