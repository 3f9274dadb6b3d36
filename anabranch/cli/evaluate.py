"""`anabranch eval`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from cyclopts import App

from anabranch.cli.options import Local
from anabranch.cli.output import print_table, say

app = App(name="eval", help="How good are retrieval and parsing?", result_action="return_value")
DEFAULT = Local()


@app.command
def retrieval(path: Path, /, *, channels: str | None = None, profile: str = "default", run_out: Path | None = None, common: Local = DEFAULT) -> int:
    """Take a test set through the real pipeline, in a data folder of its own, and ask all its queries.

    Parameters
    ----------
    path
        Folder with corpus.jsonl, queries.jsonl and qrels.tsv.
    channels
        Only these, separated by commas: lexical, semantic, graph.
    profile
        Named way of answering.
    run_out
        Write the rankings as a TREC run file.
    """
    from anabranch.cli.channels import channels_named
    from anabranch.evaluating import retrieval_report
    from anabranch.process.logs import configure_logs
    from evaluation.run_file import write_run

    only = channels_named(channels) if channels is not None else None
    settings = common.settings("logging.level=warning")
    configure_logs(settings.logging)
    report, run = asyncio.run(retrieval_report(path, settings, channels=only, profile=profile))
    if run_out is not None:
        write_run(run_out, run, f"anabranch-{profile}")
    if common.json:
        common.show(report)
    else:
        print_table(("metric", "value"), [(name, f"{value:.4f}") for name, value in report["metrics"].items()])
        say(f"{report['documents']} documents, {report['queries']} queries; p50 {report['latency_ms']['p50']:.0f} ms", quiet=common.quiet)
    return 0


@app.command
def documents(path: Path, /, *, common: Local = DEFAULT) -> int:
    """Parse files with ground truth and compare.

    Parameters
    ----------
    path
        Folder with manifest.jsonl, files/ and ground_truth/.
    """
    from anabranch.evaluating import documents_report
    from anabranch.process.logs import configure_logs

    settings = common.settings("logging.level=warning")
    configure_logs(settings.logging)
    report = asyncio.run(documents_report(path, settings))
    if common.json:
        common.show(report)
    else:
        print_table(("kind", "files", "figures"), [(kind, figures.get("files"), _figures(figures)) for kind, figures in report["kinds"].items()])
    return 0


def _figures(figures: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in figures.items() if isinstance(value, float))
