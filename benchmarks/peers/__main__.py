"""Command line of the comparison with other systems; each run has its own Postgres."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.harness import make_synthetic_texts
from benchmarks.peers.measurements import Measurements, Workload
from benchmarks.peers.report import format_tables
from benchmarks.peers.systems import SYSTEMS, install_environments
from benchmarks.peers.workload import load_corpus
from sql.embedded.server import EmbeddedPostgres

MEASUREMENTS = ("start", "ingest", "live", "kill")
SHORTEST_WORDS, LONGEST_WORDS, PARAGRAPH_WORDS = 60, 240, 40


def parse_names(value: str) -> list[str]:
    return value.split(",")


def make_synthetic_corpus(documents: int) -> dict[str, str]:
    """Make Markdown files of 60 to 240 words in short paragraphs, most of one or two chunks."""
    texts = {}
    for number, text in enumerate(make_synthetic_texts(documents, LONGEST_WORDS)):
        length = SHORTEST_WORDS + number * 37 % (LONGEST_WORDS - SHORTEST_WORDS + 1)
        words = text.split()[:length]
        paragraphs = [
            " ".join(words[start : start + PARAGRAPH_WORDS])
            for start in range(0, length, PARAGRAPH_WORDS)
        ]
        title = f"# Document {number}"
        texts[f"{number:06}.md"] = "\n\n".join([title, *paragraphs]) + "\n"
    return texts


def build_workload(arguments: argparse.Namespace) -> Workload:
    needed = arguments.documents + arguments.new_files
    texts = (
        load_corpus(arguments.corpus, needed) if arguments.corpus else make_synthetic_corpus(needed)
    )
    if len(texts) < needed:
        raise SystemExit(f"{arguments.corpus} has {len(texts)} documents; {needed} are needed.")
    files = list(texts.items())
    return Workload(
        texts=dict(files[: arguments.documents]),
        new_texts=dict(files[arguments.documents :]),
        changes=arguments.changes,
        repeat=arguments.repeat,
        settle_s=arguments.settle_s,
        idle_s=arguments.idle_s,
        kill_at=arguments.kill_at,
    )


def measure_system(measurements: Measurements, chosen: list[str]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    try:
        if "start" in chosen:
            figures["start"] = measurements.measure_start()
        if "ingest" in chosen:
            figures |= measurements.measure_ingest()
        if "live" in chosen and measurements.system.is_incremental:
            figures["live"] = measurements.measure_live()
        if "kill" in chosen and measurements.system.is_incremental:
            figures["kill"] = measurements.measure_kill()
    except RuntimeError as error:
        # The figures of the other systems are still worth having.
        figures["error"] = str(error)
    return figures


def run(arguments: argparse.Namespace) -> None:
    workload = build_workload(arguments)
    report: dict[str, Any] = {
        "benchmark": "peers",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "documents": arguments.documents,
        "corpus": arguments.corpus.name if arguments.corpus else "synthetic",
        "cores": os.cpu_count(),
        "load_before": os.getloadavg(),
        "systems": {},
    }
    numbers = count()
    with tempfile.TemporaryDirectory(prefix="anabranch-peers-") as folder:
        Path(folder).chmod(0o755)
        server = EmbeddedPostgres(Path(folder) / "postgres")
        server.start()
        try:
            for name in arguments.systems:
                measurements = Measurements(SYSTEMS[name], server, Path(folder), workload, numbers)
                figures = measure_system(measurements, arguments.measure)
                report["systems"][name] = figures
                print(name, json.dumps(figures), file=sys.stderr, flush=True)
        finally:
            server.stop()
    report["load_after"] = os.getloadavg()
    text = json.dumps(report, indent=1) + "\n"
    if arguments.out:
        arguments.out.write_text(text)
    else:
        print(text, end="")
    if any("error" in figures for figures in report["systems"].values()):
        raise SystemExit(1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    systems = argparse.ArgumentParser(add_help=False)
    systems.add_argument(
        "--systems",
        type=parse_names,
        default=list(SYSTEMS),
        help=f"Comma-separated names. [default: {','.join(SYSTEMS)}]",
    )
    commands.add_parser("install", parents=[systems], help="Create the systems' environments.")
    measure = commands.add_parser("run", parents=[systems], help="Measure, and write JSON.")
    measure.add_argument("--corpus", type=Path, help="JSONL with id, title and text.")
    measure.add_argument("--documents", type=int, default=2000)
    measure.add_argument(
        "--measure",
        type=parse_names,
        default=list(MEASUREMENTS),
        help=f"Comma-separated names. [default: {','.join(MEASUREMENTS)}]",
    )
    measure.add_argument("--repeat", type=int, default=1, help="Ingests; the median is reported.")
    measure.add_argument("--changes", type=int, default=20, help="Files to edit and to delete.")
    measure.add_argument("--new-files", type=int, default=20, help="Files for freshness.")
    measure.add_argument("--settle-s", type=float, default=3.0)
    measure.add_argument("--idle-s", type=float, default=5.0)
    measure.add_argument("--kill-at", type=float, default=0.5, help="Share of the rows.")
    measure.add_argument("--out", type=Path, help="File for the results. [default: stdout]")
    table = commands.add_parser("table", help="Print results as Markdown tables.")
    table.add_argument("results", type=Path)
    arguments = parser.parse_args()
    for option, known in (("systems", SYSTEMS), ("measure", MEASUREMENTS)):
        if unknown := set(getattr(arguments, option, ())) - set(known):
            parser.error(f"--{option}: unknown {', '.join(sorted(unknown))}")
    # So that edits, deletions and changes of a stopped system affect different files.
    if arguments.command == "run" and arguments.documents < 3 * arguments.changes:
        parser.error("--documents must be at least three times --changes")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    match arguments.command:
        case "install":
            install_environments(arguments.systems)
        case "run":
            run(arguments)
        case "table":
            print(format_tables(json.loads(arguments.results.read_text())))


if __name__ == "__main__":
    main()
