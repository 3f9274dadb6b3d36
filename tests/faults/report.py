"""Results as Markdown, in the page about faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docs.generate import replace_section
from docs.tables import format_table
from tests.faults.await_points import AwaitCoverage
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


def format_await_coverage(coverage: AwaitCoverage) -> str:
    """Say which share of the awaits was struck, and list the sites that never were."""
    n_points, n_struck_points = len(coverage.seen | coverage.struck), len(coverage.struck)
    n_sites, n_struck_sites = len(coverage.sites_seen), len(coverage.sites_struck)
    lines = [
        f"Await sites (file and line) struck: {n_struck_sites} of {n_sites}"
        f" ({n_struck_sites / max(1, n_sites):.0%})."
        f" Await points (stage, site, before or after the response) struck:"
        f" {n_struck_points} of {n_points} ({n_struck_points / max(1, n_points):.0%})."
    ]
    if coverage.sites_never_struck:
        lines += ["", "Sites never struck:", ""]
        lines += [f"- `{site}`" for site in coverage.sites_never_struck]
    return "\n".join(lines)


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
    """Write the rows and the await coverage between the markers of the page.

    Rows of faults that were not tried this time stay.
    """
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
    text = replace_section(text, "faults", "\n".join([heading, line, *rows_by_fault.values()]))
    for row in rows:
        if row.await_coverage is not None:
            text = replace_section(
                text, "await coverage", format_await_coverage(row.await_coverage)
            )
    page.write_text(text, encoding="utf-8")


def parse_fault_name(row: str) -> str:
    return row.split("|")[1].strip()
