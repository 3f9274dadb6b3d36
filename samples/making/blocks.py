"""The little Markdown that the sources are written in: headings, paragraphs, lists, tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Block:
    kind: Literal["heading", "paragraph", "list", "table"]
    text: str = ""
    level: int = 0
    rows: list[list[str]] = field(default_factory=list)


def read(markdown: str) -> list[Block]:
    """Blocks are separated by blank lines. A list's items and a table's cells are in `rows`."""
    return [_block(part.splitlines()) for part in markdown.strip().split("\n\n")]


def _block(lines: list[str]) -> Block:
    first = lines[0]
    if first.startswith("#"):
        marks, _, text = first.partition(" ")
        return Block("heading", text, len(marks))
    if first.startswith("|"):
        return Block("table", rows=[_cells(line) for line in lines if not line.startswith("| ---")])
    if first.startswith("- "):
        return Block("list", rows=[[line[2:]] for line in lines])
    return Block("paragraph", " ".join(lines))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
