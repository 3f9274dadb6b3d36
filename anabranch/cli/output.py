"""stdout is data, stderr is talk."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

SCHEMA_VERSION = 1


def print_json(body: dict[str, Any]) -> None:
    print(json.dumps({"schema_version": SCHEMA_VERSION, **body}, ensure_ascii=False, indent=1, default=str), flush=True)


def print_line(body: dict[str, Any]) -> None:
    """One of several, at once."""
    print(json.dumps({"schema_version": SCHEMA_VERSION, **body}, ensure_ascii=False, default=str), flush=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their longest cell; no colours, so that it can be piped."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(headings), *cells]) for column in range(len(headings))]
    for line in [list(headings), *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def say(text: str, *, quiet: bool = False) -> None:
    if not quiet:
        print(text, file=sys.stderr, flush=True)


def _cell(value: object) -> str:
    return "-" if value is None else str(value).replace("\n", " ")
