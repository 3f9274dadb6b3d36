"""Ingestion as it goes: a live table on a terminal, else a line for each document that ended and one every ten seconds."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.output import say
from anabranch.process.terminal import escape_controls, escape_streams, unescaped

if TYPE_CHECKING:
    from rich.table import Table

    from anabranch.ingestion import Ingestion, Source

STAGES = ("receive", "transcribe", "chunk", "embed", "index", "extract", "graph")
MARKS = {"done": "✓", "running": "…", "failed": "✗", "waiting": "·"}
SHOWN = 12
LINE_S, TICK_S = 10.0, 0.2


@contextmanager
def watching(job: Ingestion, *, quiet: bool, plain: bool) -> Iterator[None]:
    """Reads `job` from the side; it need not know."""
    if quiet:
        yield
        return
    watch = _table if sys.stderr.isatty() and not plain else _lines
    over = threading.Event()
    thread = threading.Thread(target=watch, args=(job, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _lines(job: Ingestion, over: threading.Event) -> None:
    told: set[int] = set()
    waited = 0.0
    while True:
        finished = over.wait(TICK_S)
        for number, source in enumerate(job.sources):
            if number not in told and source.ended:
                told.add(number)
                say(f"{source.path}: {_outcome(source)}")
        waited += TICK_S
        if waited >= LINE_S and not finished:
            waited = 0.0
            say(_summary(job))
        if finished:
            return


def _table(job: Ingestion, over: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(_rendered(job), console=Console(file=unescaped(sys.stderr)), refresh_per_second=5, transient=False) as live:
        escape_streams()  # the streams that it has put in their place
        while not over.wait(TICK_S):
            live.update(_rendered(job))
        live.update(_rendered(job))


def _rendered(job: Ingestion) -> Table:
    from rich.table import Table
    from rich.text import Text

    # As Text: in a plain string square brackets are markup, links included.
    table = Table(title=Text(escape_controls(_summary(job))), title_justify="left", box=None)
    table.add_column("document", max_width=32, overflow="ellipsis", no_wrap=True)
    table.add_column(f"{STAGES[0]} → {STAGES[-1]}", no_wrap=True)
    table.add_column("at")
    active = [source for source in job.sources if not source.ended] + [source for source in reversed(job.sources) if source.ended]
    for source in active[:SHOWN]:
        cells = (Path(source.path).name or source.path, " ".join(_mark(source, stage) for stage in STAGES), _now(source))
        table.add_row(*(Text(escape_controls(cell)) for cell in cells))
    return table


def _mark(source: Source, stage: str) -> str:
    found = [line for line in source.stages if line["stage"] == stage]
    return MARKS.get(found[0]["state"], "…") if found else "·"


def _now(source: Source) -> str:
    if source.ended:
        return f"{source.state}: {source.error['code']}" if source.error else source.outcome
    return next((line["stage"] for line in source.stages if line["state"] != "done"), source.state)


def _outcome(source: Source) -> str:
    if source.error:
        return f"{source.state} [{source.error['code']}]"
    times = [f"{line['stage']} {line['duration_ms']:.0f} ms" for line in source.stages if line.get("duration_ms") is not None]
    chunks = f", {source.chunks_count} chunks" if source.chunks_count is not None else ""
    return source.outcome + chunks + (f" ({', '.join(times)})" if times else "")


def _summary(job: Ingestion) -> str:
    """With where those are that are on their way, so that a slow step has a name."""
    counts = Counter(source.outcome for source in job.sources)
    places = Counter(_now(source) for source in job.sources if source.state == "running")
    where = ", ".join(f"{number} at {stage}" for stage, number in places.most_common() if stage != "running")
    told = ", ".join(f"{number} {state}" for state, number in counts.most_common())
    return f"{len(job.sources)} document{'s' if len(job.sources) > 1 else ''}: {told}" + (f" ({where})" if where else "")
