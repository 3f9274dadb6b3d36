"""Stored reports of `benchmarks.retrieval_sets` as Markdown tables, and as a plot in SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

Reports = Mapping[str, Mapping[str, Any]]
"""Reports by the name of the set."""

MEASURE = "ndcg@10"
COLUMNS = {
    "ndcg@10": "nDCG@10",
    "mrr@10": "MRR@10",
    **{f"recall@{k}": f"Recall@{k}" for k in (2, 5, 10, 100)},
}


def format_tables(reports: Reports) -> str:
    """Return one table per set, one line per configuration."""
    return "\n\n".join(_format_table(report) for report in reports.values())


def _format_table(report: Mapping[str, Any]) -> str:
    chunks = ", ".join(
        f"{ingest['child_chunks']:,} chunks ({chunking})"
        for chunking, ingest in report["ingest"].items()
    )
    measures = " | ".join(COLUMNS.values())
    lines = [
        f"**{report['set']}**: {report['documents']:,} documents, {report['queries']} questions, "
        f"{chunks}",
        "",
        f"| configuration | {measures} | nDCG@10 − hybrid's, 95 % interval | CPU ms |",
        "| --- " * (len(COLUMNS) + 3) + "|",
    ]
    for name, figures in report["configurations"].items():
        values = " | ".join(_format_share(figures["metrics"][measure]) for measure in COLUMNS)
        difference = "" if name == "hybrid" else _format_interval(figures)
        cpu_ms = sum(figures["cpu_ms_per_query"].values())
        lines.append(f"| {name} | {values} | {difference} | {cpu_ms:.0f} |")
    return "\n".join(lines)


def _format_interval(figures: Mapping[str, Any]) -> str:
    interval = figures["difference_from_hybrid"][MEASURE]
    difference, low, high = (
        _format_signed(interval[name]) for name in ("difference", "low", "high")
    )
    return f"{difference} [{low}, {high}]"


def _format_share(value: float) -> str:
    return f"{value:.4f}".removeprefix("0")


def _format_signed(value: float) -> str:
    return f"{value:+.3f}".replace("0.", ".", 1).replace("-", "−")


# Pixels. Labels to the left of the first panel, one panel per set.
LABEL_WIDTH, PANEL_WIDTH, PANEL_GAP, ROW_HEIGHT, TOP, BOTTOM = 165, 170, 16, 24, 56, 74
# A channel alone may be so far off that the other differences would not be seen.
MIN_DIFFERENCE = -0.15

STYLE = """
    text { fill: #4b5563; font-size: 12px }
    .set { fill: #1f2937; font-size: 14px; font-weight: 600; text-anchor: middle }
    .label { text-anchor: end }
    .tick { text-anchor: middle }
    .paper { fill: #ffffff; stroke: #d0d7de }
    .panel { fill: #f6f8fa }
    .zero { stroke: #6b7280; stroke-dasharray: 3 3 }
    .worse { stroke: #1d4ed8; fill: #1d4ed8 }
    .better { stroke: #c2410c; fill: #c2410c }
    .open { stroke: #6b7280; fill: #f6f8fa }
    .interval { stroke-width: 2 }
    .dot { stroke-width: 2 }
    @media (prefers-color-scheme: dark) {
      text { fill: #b1bac4 }
      .set { fill: #e6edf3 }
      .paper { fill: #0d1117; stroke: #30363d }
      .panel { fill: #161b22 }
      .zero { stroke: #8b949e }
      .worse { stroke: #79b8ff; fill: #79b8ff }
      .better { stroke: #ffa657; fill: #ffa657 }
      .open { stroke: #8b949e; fill: #161b22 }
    }
"""
LEGEND = {
    "worse": "worse than the hybrid",
    "open": "no difference shown",
    "better": "better than the hybrid",
}


def draw_plot(reports: Reports) -> str:
    """Return a panel per set, with the difference from the hybrid and its interval per line."""
    names = list(
        dict.fromkeys(
            name
            for report in reports.values()
            for name in report["configurations"]
            if name != "hybrid"
        )
    )
    highs = [
        figures["difference_from_hybrid"][MEASURE]["high"]
        for report in reports.values()
        for figures in report["configurations"].values()
    ]
    scale = PANEL_WIDTH / (max(0.05, *highs) * 1.1 - MIN_DIFFERENCE)
    # The legend is as wide as three panels.
    width = LABEL_WIDTH + max(3, len(reports)) * (PANEL_WIDTH + PANEL_GAP) + PANEL_GAP
    bottom = TOP + len(names) * ROW_HEIGHT
    title = "nDCG@10 of each configuration minus that of the hybrid, with 95 % intervals"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + BOTTOM}" '
        'role="img" font-family="system-ui, \'Segoe UI\', Helvetica, Arial, sans-serif">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{bottom + BOTTOM}" rx="6"/>',
        f'<text x="{PANEL_GAP}" y="22">{title}</text>',
        *(
            f'<text class="label" x="{LABEL_WIDTH - 6}" y="{_compute_y(row) + 4}">'
            f"{escape(name)}</text>"
            for row, name in enumerate(names)
        ),
    ]
    for column, report in enumerate(reports.values()):
        left = LABEL_WIDTH + PANEL_GAP + column * (PANEL_WIDTH + PANEL_GAP)
        parts += _draw_panel(report, names, left, bottom, scale)
    for position, (kind, meaning) in enumerate(LEGEND.items()):
        x, y = LABEL_WIDTH + PANEL_GAP + 6 + position * (PANEL_WIDTH + PANEL_GAP), bottom + 54
        parts.append(f'<circle class="dot {kind}" cx="{x}" cy="{y - 4}" r="4"/>')
        parts.append(f'<text x="{x + 10}" y="{y}">{meaning}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _compute_y(row: int) -> int:
    return TOP + row * ROW_HEIGHT + ROW_HEIGHT // 2


def _draw_panel(
    report: Mapping[str, Any], names: list[str], left: int, bottom: int, scale: float
) -> list[str]:
    def compute_x(difference: float) -> float:
        return round(left + (max(difference, MIN_DIFFERENCE) - MIN_DIFFERENCE) * scale, 1)

    zero = compute_x(0)
    parts = [
        f'<text class="set" x="{left + PANEL_WIDTH // 2}" y="{TOP - 10}">'
        f"{escape(report['set'])}</text>",
        f'<rect class="panel" x="{left}" y="{TOP}" width="{PANEL_WIDTH}" height="{bottom - TOP}"/>',
        f'<line class="zero" x1="{zero}" y1="{TOP}" x2="{zero}" y2="{bottom}"/>',
        *(
            f'<text class="tick" x="{compute_x(tick)}" y="{bottom + 18}">'
            f"{_format_tick(tick)}</text>"
            for tick in (-0.1, 0.0)
        ),
    ]
    for row, name in enumerate(names):
        if name in report["configurations"]:
            interval = report["configurations"][name]["difference_from_hybrid"][MEASURE]
            parts += _draw_interval(interval, compute_x, _compute_y(row))
    return parts


def _draw_interval(
    interval: Mapping[str, float], compute_x: Callable[[float], float], y: int
) -> list[str]:
    difference, low, high = (interval[name] for name in ("difference", "low", "high"))
    kind = "worse" if high < 0 else "better" if low > 0 else "open"
    x = compute_x(difference)
    tooltip = f"<title>{_format_signed(difference)} [{_format_signed(low)}, "
    tooltip += f"{_format_signed(high)}]</title>"
    if difference < MIN_DIFFERENCE:
        return [
            f'<g><path class="{kind}" d="M{x + 2} {y}l7 -5v10z"/>{tooltip}'
            f'<text x="{x + 14}" y="{y + 4}">{_format_signed(difference)}</text></g>'
        ]
    return [
        f'<g><line class="interval {kind}" x1="{compute_x(low)}" y1="{y}" x2="{compute_x(high)}" '
        f'y2="{y}"/><circle class="dot {kind}" cx="{x}" cy="{y}" r="4"/>{tooltip}</g>'
    ]


def _format_tick(value: float) -> str:
    return f"{value:+.1f}".replace("0.", ".").replace("-", "−") if value else "0"
