"""Write the results into the page about faults, as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from docs.generate import replace_section
from docs.tables import format_table
from tests.faults.await_points import AwaitCoverage
from tests.faults.killed_workers import STAGES_WITHOUT_EVENTS
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
    """Return the struck shares, and the sites and stages that were not struck."""
    site_share = _format_share(coverage.sites_struck, coverage.sites_reached)
    point_share = _format_share(coverage.struck, coverage.reached)
    lines = [
        f"Await sites (file and line) struck: {site_share}. Await points (stage, site, before or"
        f" after the response) struck: {point_share}. Both shares are of what the clean run or the"
        " struck run reached.",
        "",
        "Stages that are not struck:",
        "",
        *(f"- `{stage}`: {reason}" for stage, reason in STAGES_WITHOUT_EVENTS.items()),
    ]
    if coverage.sites_never_struck:
        lines += ["", "Sites never struck:", ""]
        lines += [f"- `{site}`" for site in coverage.sites_never_struck]
    return "\n".join(lines)


def _format_share(struck: Collection[str], reached: Collection[str]) -> str:
    return f"{len(struck)} of {len(reached)} ({len(struck) / max(1, len(reached)):.0%})"


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

    Rows of faults that did not run stay.
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
