"""Rows as Markdown, in the page that tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docs.generate import filled
from docs.tables import table
from tests.faults.verdict import BOUND_BYTES, Row

MIB = 1024 * 1024
HEADINGS = (
    "fault",
    "seed",
    "documents",
    "struck",
    "lost",
    "doubled",
    "buried, expected",
    f"peak RSS, bound {BOUND_BYTES // MIB} MiB",
    "views equal",
    "seconds",
)


def markdown(rows: Sequence[Row]) -> str:
    return table(HEADINGS, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    buried = f"{row.buried[0]}, {row.buried[1]}"
    numbers = (row.seed, row.documents, row.struck, row.lost, row.doubled)
    return (row.fault, *map(str, numbers), buried, f"{row.peak_bytes // MIB} MiB", "yes" if row.equal else "**no**", f"{row.seconds:.0f}")


def write(page: Path, rows: Sequence[Row]) -> None:
    """Between the markers of the page; rows of faults that were not tried this time stay."""
    text = page.read_text(encoding="utf-8")
    heading, line, *lines = markdown(rows).splitlines()
    before = text.partition("<!-- generated: faults -->")[2].partition("<!-- end: faults -->")[0].strip().splitlines()[2:]
    kept = {fault_of(row): row for row in before}
    kept |= {fault_of(row): row for row in lines}
    page.write_text(filled(text, "faults", "\n".join([heading, line, *kept.values()])), encoding="utf-8")


def fault_of(row: str) -> str:
    return row.split("|")[1].strip()
