"""DeepSeek-OCR's output: blocks marked `<|ref|>label<|/ref|><|det|>[[x0, y0, x1, y1], …]<|/det|>`, coordinates from 0 to 999."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from engines.drafts import Draft
from engines.parse import markdown
from schemas.values import Box

END = "<｜end▁of▁sentence｜>"
_BLOCK = re.compile(r"<\|ref\|>((?:(?!<\|/?ref\|>).)*+)<\|/ref\|><\|det\|>((?:(?!<\|/?(?:ref|det)\|>).)*+)<\|/det\|>", re.S)
_TAG = re.compile(r"<\|/?(?:ref|det|grounding)\|>")
_REPLACED = {END: "", "\\coloneqq": ":=", "\\eqqcolon": "=:"}
_CAPTIONS = frozenset({"image_caption", "table_caption", "figure_caption"})
_SCALE = 999.0


def drafts(answer: str) -> list[Draft]:
    """Blocks with their boxes; pictures are left out, HTML tables become pipe tables. Text before the first mark has no box."""
    for said, meant in _REPLACED.items():
        answer = answer.replace(said, meant)
    marks = list(_BLOCK.finditer(answer))
    edges = [*(mark.start() for mark in marks), len(answer)]
    found = list(_read(answer[: edges[0]], "text", None))
    for mark, end in zip(marks, edges[1:], strict=True):
        found += _read(answer[mark.end() : end], mark[1].strip(), _box(mark[2]))
    return found


def _read(text: str, label: str, box: Box | None) -> Iterator[Draft]:
    if label == "image":
        return
    for draft in markdown.read(_TAG.sub("", text).strip().encode()).drafts:
        kind = "caption" if label in _CAPTIONS and draft.kind == "paragraph" else draft.kind
        heading = label in ("title", "sub_title") and draft.kind in ("paragraph", "heading")
        level = (1 if label == "title" else 2) if heading and draft.kind == "paragraph" else draft.level
        yield replace(draft, kind="heading" if heading else kind, level=level, box=box)


def _box(stated: str) -> Box | None:
    """The rectangle around all that are stated; None where they cannot be read."""
    try:
        corners = [[float(value) / _SCALE for value in corner] for corner in json.loads(stated)]
        x0, y0 = min(corner[0] for corner in corners), min(corner[1] for corner in corners)
        x1, y1 = max(corner[2] for corner in corners), max(corner[3] for corner in corners)
    except (ValueError, TypeError, IndexError):
        return None
    return _share(x0), _share(y0), _share(x1), _share(y1)


def _share(value: float) -> float:
    return round(min(max(value, 0.0), 1.0), 4)
