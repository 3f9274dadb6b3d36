"""Tables of a paged document that its pages or columns divide, and tables of labels and values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from engines.parsed_blocks import ParsedBlock, has_header, is_label

_CONTINUED = re.compile(
    r"(?:.*\W)?(?:continued|cont\.|continua[çc][ãa]o|continua|fortsetzung)\W*", re.I
)
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_MAX_SHIFT, _MAX_WIDTH_CHANGE = 0.03, 0.12
"""Shares of the page by which the edges of two parts of one table differ: cells end ragged."""


def complete_tables(blocks: Sequence[ParsedBlock]) -> list[ParsedBlock]:
    """Give the rest of a table its header, in place; return tables of labels as lists."""
    tables = [
        block
        for block in blocks
        if block.kind == "table" or not (block.page and _CONTINUED.fullmatch(block.text))
    ]
    for upper, lower in pairwise(tables):
        if upper.kind == lower.kind == "table" and _continues(upper, lower):
            _repeat_header(upper, lower)
    for block in blocks:
        if block.kind == "table" and block.page:
            _format_pairs(block)
    return list(blocks)


def _continues(upper: ParsedBlock, lower: ParsedBlock) -> bool:
    """Return whether a table continues on the next page, or in the next column of the page."""
    if not (upper.page and lower.page and upper.box and lower.box):
        return False
    shift = lower.box[0] - upper.box[0]
    widening = (lower.box[2] - lower.box[0]) - (upper.box[2] - upper.box[0])
    is_in_place = (
        abs(shift) < _MAX_SHIFT
        if lower.page == upper.page + 1
        else lower.page == upper.page and lower.box[0] >= upper.box[2] - _MAX_SHIFT
    )
    return is_in_place and abs(widening) < _MAX_WIDTH_CHANGE


def _repeat_header(upper: ParsedBlock, lower: ParsedBlock) -> None:
    header, rows = _split_rows(upper), _split_rows(lower)
    if not any(header[0]) or len(header[0]) != len(rows[0]) or upper.header_end is None:
        return
    lines = lower.text.split("\n")
    first, delimiter, rest = lines[0], lines[1:2], lines[2:]
    if not delimiter or set(delimiter[0]) - set("|- "):
        return
    if any(rows[0]):
        # A name above values is a header of its own, which may repeat or differ.
        if rows[0] == header[0] or has_header(rows, by_convention=False):
            return
        rest.insert(0, first)
    head = upper.text[: upper.header_end]
    lower.text, lower.header_end = "\n".join([head, *rest]), len(head)


def _split_rows(block: ParsedBlock) -> list[list[str]]:
    """Return the cells of a table without its delimiter row."""
    lines = block.text.split("\n")
    return [
        [cell.strip() for cell in _CELL_BORDER.split(line)[1:-1]]
        for line in lines
        if set(line) - set("|- ") or line is lines[0]
    ]


def _format_pairs(block: ParsedBlock) -> None:
    """Format a table of two columns without a header as a list of labels and values."""
    rows = _split_rows(block)
    if any(rows[0]) or len(rows[0]) != 2 or len(rows) < 2:
        return
    pairs = rows[1:]
    if all(is_label(label) for label, _ in pairs):
        block.kind, block.header_end = "list", None
        block.text = "\n".join(
            f"- {label.rstrip(': ')}: {value}".rstrip() for label, value in pairs
        ).replace("\\|", "|")
