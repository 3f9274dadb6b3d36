"""The Markdown subset of the sources: headings, paragraphs, lists and tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class SampleBlock:
    kind: Literal["heading", "paragraph", "list", "table"]
    text: str = ""
    level: int = 0
    rows: list[list[str]] = field(default_factory=list)


def parse_blocks(markdown: str) -> list[SampleBlock]:
    """Split at blank lines. List items and table cells are in `rows`."""
    return [_parse_block(part.splitlines()) for part in markdown.strip().split("\n\n")]


def _parse_block(lines: list[str]) -> SampleBlock:
    first = lines[0]
    if first.startswith("#"):
        marks, _, text = first.partition(" ")
        return SampleBlock("heading", text, len(marks))
    if first.startswith("|"):
        return SampleBlock(
            "table",
            rows=[
                [cell.strip() for cell in line.strip("|").split("|")]
                for line in lines
                if not line.startswith("| ---")
            ],
        )
    if first.startswith("- "):
        return SampleBlock("list", rows=[[line[2:]] for line in lines])
    return SampleBlock("paragraph", " ".join(lines))
