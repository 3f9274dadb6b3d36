"""Render DOCX files (python-docx) without timestamps: the same input gives the same bytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import docx

from samples.renderers.blocks import SampleBlock

FIXED_TIME = datetime(2026, 1, 1)


def render_docx(blocks: Sequence[SampleBlock], title: str) -> bytes:
    document = docx.Document()
    properties = document.core_properties
    properties.title, properties.author, properties.created, properties.modified = (
        title,
        "Anabranch samples",
        FIXED_TIME,
        FIXED_TIME,
    )
    for block in blocks:
        _add_block(document, block)
    out = io.BytesIO()
    document.save(out)
    return _strip_timestamps(out.getvalue())


def _add_block(document: Any, block: SampleBlock) -> None:
    match block.kind:
        case "heading":
            document.add_heading(block.text, level=block.level)
        case "list":
            for (item,) in block.rows:
                document.add_paragraph(item, style="List Bullet")
        case "table":
            table = document.add_table(
                rows=len(block.rows), cols=len(block.rows[0]), style="Table Grid"
            )
            for texts, row in zip(block.rows, table.rows, strict=True):
                for text, cell in zip(texts, row.cells, strict=True):
                    cell.text = text
        case _:
            document.add_paragraph(block.text)


def _strip_timestamps(data: bytes) -> bytes:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            part = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            part.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(part, source.read(name))
    return out.getvalue()
