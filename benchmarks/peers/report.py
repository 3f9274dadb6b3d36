"""Results as a Markdown table, one column per system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Figures = Mapping[str, Any]
NONE = ""


def format_check(figures: Figures) -> str:
    """Return `exact`, or the number of rows by kind of difference."""
    kinds = ("missing", "duplicates", "extra", "wrong")
    differences = [f"{figures[kind]} {kind}" for kind in kinds if figures[kind]]
    return ", ".join(differences) or "exact"


def format_run(figures: Figures) -> str:
    return f"{figures['seconds']:.2f} s; {figures['cpu_s']:.1f} + {figures['postgres_cpu_s']:.1f}"


def format_change(figures: Figures) -> str:
    tuples = "/".join(str(figures[name]) for name in ("inserted", "updated", "deleted"))
    needed = f" for {figures['needed']}" if "needed" in figures else ""
    return (
        f"{format_run(figures)}; {figures['embedded']}; {tuples}{needed}; {format_check(figures)}"
    )


def format_tables(report: Figures) -> str:
    """Return a table of what every system needed for each measurement."""
    documents, systems = report["documents"], report["systems"]

    def per_document(figures: Figures) -> str:
        cpu = 1000 / documents
        return (
            f"{cpu * figures['cpu_s']:.2f} + {cpu * figures['postgres_cpu_s']:.2f} ms; "
            f"{figures['inserted'] / documents:.1f}, {figures['updated'] / documents:.1f}; "
            f"{figures['wal_bytes'] / documents / 1024:.1f} KiB"
        )

    def net_rate(figures: Figures) -> str:
        net_s = figures["ingest"]["seconds"] - figures["start"]["seconds"]
        # Where the start is most of the run, the difference of the two is noise.
        is_meaningful = net_s > 0.2 * figures["ingest"]["seconds"]
        return f"{documents / net_s:.0f}" if is_meaningful else "too short"

    rows: list[tuple[str, str, Callable[[Any], str]]] = [
        ("W0 start with an empty folder: wall; CPU + Postgres CPU, s", "start", format_run),
        ("W1 ingest: wall; CPU + Postgres CPU, s", "ingest", format_run),
        ("W1 documents/s", "ingest", lambda run: f"{documents / run['seconds']:.0f}"),
        ("W1 documents/s, net of start", "", net_rate),
        (
            "W1 per document: CPU + Postgres CPU; rows inserted, updated; WAL",
            "ingest",
            per_document,
        ),
        ("W1 peak memory, state outside Postgres, MB", "ingest", format_memory),
        ("W1 texts embedded; rows", "ingest", lambda r: f"{r['embedded']}; {format_check(r)}"),
        ("index build after the load, s", "index", lambda run: f"{run['seconds']:.2f}"),
        ("W2 edit: wall; CPU; texts embedded; rows ins/upd/del; check", "edit", format_change),
        ("W3 delete: the same", "delete", format_change),
        ("W4 nothing changed: the same", "unchanged", format_change),
        ("W5 killed: rows then; restart; texts embedded again; check", "kill", format_kill),
        ("W6 live, new file: p50, p95 ms; check", "live.fresh", format_freshness),
        ("live: first ingest, s", "live", lambda live: f"{live['ingest_s']:.1f}"),
        ("live: edit, s; rows rewritten; texts; check", "live.edit", format_live_edit),
        ("live: delete, s; check", "live.delete", format_timed_check),
        ("live: idle CPU + Postgres CPU, %; memory, MB", "live.idle", format_idle),
        ("live: caught up after kill -9, s; check", "live.restart", format_timed_check),
    ]
    lines = [f"| | {' | '.join(systems)} |", "| --- |" + " --- |" * len(systems)]
    for label, path, format_cell in rows:
        cells = [format_figures(system, path, format_cell) for system in systems.values()]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def format_figures(system: Figures, path: str, format_cell: Callable[[Any], str]) -> str:
    """Format the figures at a dotted path; empty if they were not measured."""
    if not path:
        return format_cell(system) if {"start", "ingest"} <= system.keys() else NONE
    figures: Any = system
    for name in path.split("."):
        if name not in figures:
            return NONE
        figures = figures[name]
    return format_cell(figures)


def format_memory(run: Figures) -> str:
    return f"{run['peak_mb']}, {run['state_mb']}"


def format_kill(kill: Figures) -> str:
    restart, after = kill["restart"], kill["after_change"]
    return (
        f"{kill['at_kill']['rows']}; {format_run(restart)}; {restart['embedded']}; "
        f"{format_check(restart)}, after a change {format_check(after)}"
    )


def format_freshness(fresh: Figures) -> str:
    return f"{fresh['p50_ms']:.0f}, {fresh['p95_ms']:.0f}; {format_check(fresh)}"


def format_live_edit(edit: Figures) -> str:
    return (
        f"{edit['seconds']:.2f}; {edit['rewritten']} for {edit['needed']}; {edit['embedded']}; "
        f"{format_check(edit)}"
    )


def format_idle(idle: Figures) -> str:
    return f"{idle['cpu_percent']} + {idle['postgres_cpu_percent']}; {idle['memory_mb']}"


def format_timed_check(figures: Figures) -> str:
    return f"{figures['seconds']:.2f}; {format_check(figures)}"
