"""Ingestion progress: a live table on a terminal, else a line per document and a summary every ten seconds."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.output import print_stderr
from anabranch.process.terminal import escape_controls, escape_streams, get_unescaped

if TYPE_CHECKING:
    from rich.table import Table

    from anabranch.cli.ingest_batch import IngestBatch, IngestItem

STAGES = ("receive", "transcribe", "chunk", "embed", "index", "extract", "graph")
STATE_MARKS = {"done": "✓", "running": "…", "failed": "✗", "waiting": "·"}
MAX_ROWS = 12
SUMMARY_INTERVAL_S, TICK_S = 10.0, 0.2


@contextmanager
def show_progress(batch: IngestBatch, *, quiet: bool, plain: bool) -> Iterator[None]:
    """Display the batch from a background thread until the context ends."""
    if quiet:
        yield
        return
    run_display = _draw_table if sys.stderr.isatty() and not plain else _print_lines
    stop = threading.Event()
    thread = threading.Thread(target=run_display, args=(batch, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _print_lines(batch: IngestBatch, stop: threading.Event) -> None:
    printed: set[int] = set()
    since_summary_s = 0.0
    while True:
        is_stopped = stop.wait(TICK_S)
        for index, item in enumerate(batch.items):
            if index not in printed and item.is_finished:
                printed.add(index)
                print_stderr(f"{item.path}: {_format_outcome(item)}")
        since_summary_s += TICK_S
        if since_summary_s >= SUMMARY_INTERVAL_S and not is_stopped:
            since_summary_s = 0.0
            print_stderr(_format_summary(batch))
        if is_stopped:
            return


def _draw_table(batch: IngestBatch, stop: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(
        _render_table(batch),
        console=Console(file=get_unescaped(sys.stderr)),
        refresh_per_second=5,
        transient=False,
    ) as live:
        escape_streams()  # rich replaced sys.stdout and sys.stderr
        while not stop.wait(TICK_S):
            live.update(_render_table(batch))
        live.update(_render_table(batch))


def _render_table(batch: IngestBatch) -> Table:
    from rich.table import Table
    from rich.text import Text

    # Text, because rich reads square brackets in plain strings as markup, links included.
    table = Table(
        title=Text(escape_controls(_format_summary(batch))), title_justify="left", box=None
    )
    table.add_column("document", max_width=32, overflow="ellipsis", no_wrap=True)
    table.add_column(f"{STAGES[0]} → {STAGES[-1]}", no_wrap=True)
    table.add_column("at")
    ordered_items = [item for item in batch.items if not item.is_finished] + [
        item for item in reversed(batch.items) if item.is_finished
    ]
    for item in ordered_items[:MAX_ROWS]:
        cells = (
            Path(item.path).name or item.path,
            " ".join(_format_mark(item, stage) for stage in STAGES),
            _format_position(item),
        )
        table.add_row(*(Text(escape_controls(cell)) for cell in cells))
    return table


def _format_mark(item: IngestItem, stage: str) -> str:
    stage_lines = [line for line in item.stages if line["stage"] == stage]
    return STATE_MARKS.get(stage_lines[0]["state"], "…") if stage_lines else "·"


def _format_position(item: IngestItem) -> str:
    if item.is_finished:
        return f"{item.state}: {item.error['code']}" if item.error else item.outcome
    return next((line["stage"] for line in item.stages if line["state"] != "done"), item.state)


def _format_outcome(item: IngestItem) -> str:
    if item.error:
        return f"{item.state} [{item.error['code']}]"
    times = [
        f"{line['stage']} {line['duration_ms']:.0f} ms"
        for line in item.stages
        if line.get("duration_ms") is not None
    ]
    chunks = f", {item.chunks_count} chunks" if item.chunks_count is not None else ""
    return item.outcome + chunks + (f" ({', '.join(times)})" if times else "")


def _format_summary(batch: IngestBatch) -> str:
    """Count documents by state, and running ones by stage, so that a slow stage shows."""
    counts = Counter(item.outcome for item in batch.items)
    counts_by_stage = Counter(
        _format_position(item) for item in batch.items if item.state == "running"
    )
    stage_summary = ", ".join(
        f"{number} at {stage}"
        for stage, number in counts_by_stage.most_common()
        if stage != "running"
    )
    state_summary = ", ".join(f"{number} {state}" for state, number in counts.most_common())
    return f"{len(batch.items)} document{'s' if len(batch.items) > 1 else ''}: {state_summary}" + (
        f" ({stage_summary})" if stage_summary else ""
    )
