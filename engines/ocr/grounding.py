"""Parser of DeepSeek-OCR output.

Blocks are marked `<|ref|>label<|/ref|><|det|>[[x0, y0, x1, y1], …]<|/det|>`, with coordinates from
0 to 999.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from engines.parse import markdown
from engines.parsed_blocks import ParsedBlock
from schemas.values import Box

END_OF_SENTENCE = "<｜end▁of▁sentence｜>"
_BLOCK = re.compile(
    r"<\|ref\|>((?:(?!<\|/?ref\|>).)*+)<\|/ref\|><\|det\|>((?:(?!<\|/?(?:ref|det)\|>).)*+)<\|/det\|>",
    re.S,
)
_TAG = re.compile(r"<\|/?(?:ref|det|grounding)\|>")
_REPLACEMENTS = {END_OF_SENTENCE: "", "\\coloneqq": ":=", "\\eqqcolon": "=:"}
_CAPTION_LABELS = frozenset({"image_caption", "table_caption", "figure_caption"})
_COORDINATE_SCALE = 999.0


def parse_blocks(answer: str) -> list[ParsedBlock]:
    """Parse blocks with their boxes, without images.

    HTML tables become pipe tables, text before the first mark has no box.
    """
    for token, replacement in _REPLACEMENTS.items():
        answer = answer.replace(token, replacement)
    marks = list(_BLOCK.finditer(answer))
    edges = [*(mark.start() for mark in marks), len(answer)]
    blocks = list(_parse_section(answer[: edges[0]], "text", None))
    for mark, end in zip(marks, edges[1:], strict=True):
        blocks += _parse_section(answer[mark.end() : end], mark[1].strip(), _parse_box(mark[2]))
    return blocks


def _parse_section(text: str, label: str, box: Box | None) -> Iterator[ParsedBlock]:
    if label == "image":
        return
    for block in markdown.read(_TAG.sub("", text).strip().encode()).blocks:
        kind = "caption" if label in _CAPTION_LABELS and block.kind == "paragraph" else block.kind
        is_heading = label in ("title", "sub_title") and block.kind in ("paragraph", "heading")
        level = (
            (1 if label == "title" else 2)
            if is_heading and block.kind == "paragraph"
            else block.level
        )
        yield replace(block, kind="heading" if is_heading else kind, level=level, box=box)


def _parse_box(encoded: str) -> Box | None:
    """Return the rectangle around all stated ones, or None if they cannot be parsed."""
    try:
        corners = [
            [float(value) / _COORDINATE_SCALE for value in corner] for corner in json.loads(encoded)
        ]
        x0, y0 = min(corner[0] for corner in corners), min(corner[1] for corner in corners)
        x1, y1 = max(corner[2] for corner in corners), max(corner[3] for corner in corners)
    except (ValueError, TypeError, IndexError):
        return None
    return _clamp_share(x0), _clamp_share(y0), _clamp_share(x1), _clamp_share(y1)


def _clamp_share(value: float) -> float:
    return round(min(max(value, 0.0), 1.0), 4)
