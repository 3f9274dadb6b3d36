"""Rows as Markdown, in the page that tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docs.generate import replace_section
from docs.tables import format_table
from tests.faults.result import MAX_RSS_BYTES, FaultResult

MIB = 1024 * 1024
HEADINGS = (
    "fault",
    "seed",
    "documents",
    "struck",
    "lost",
    "doubled",
    "dead-lettered, expected",
    f"peak RSS, bound {MAX_RSS_BYTES // MIB} MiB",
    "views equal",
    "seconds",
)


def format_fault_table(rows: Sequence[FaultResult]) -> str:
    return format_table(HEADINGS, [_format_cells(row) for row in rows])


def _format_cells(row: FaultResult) -> tuple[str, ...]:
    dead_lettered = f"{row.dead_letters[0]}, {row.dead_letters[1]}"
    numbers = (row.seed, row.documents, row.n_injected, row.n_lost, row.n_duplicated)
    return (
        row.fault,
        *map(str, numbers),
        dead_lettered,
        f"{row.peak_rss_bytes // MIB} MiB",
        "yes" if row.views_equal else "**no**",
        f"{row.elapsed_s:.0f}",
    )


def write_table(page: Path, rows: Sequence[FaultResult]) -> None:
    """Between the markers of the page; rows of faults that were not tried this time stay."""
    text = page.read_text(encoding="utf-8")
    heading, line, *lines = format_fault_table(rows).splitlines()
    previous_rows = (
        text.partition("<!-- generated: faults -->")[2]
        .partition("<!-- end: faults -->")[0]
        .strip()
        .splitlines()[2:]
    )
    rows_by_fault = {parse_fault_name(row): row for row in previous_rows}
    rows_by_fault |= {parse_fault_name(row): row for row in lines}
    page.write_text(
        replace_section(text, "faults", "\n".join([heading, line, *rows_by_fault.values()])),
        encoding="utf-8",
    )


def parse_fault_name(row: str) -> str:
    return row.split("|")[1].strip()
