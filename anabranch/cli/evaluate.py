"""`anabranch eval`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cyclopts import App

from anabranch.cli.options import LocalOptions
from anabranch.cli.output import print_stderr, print_table

app = App(
    name="eval", help="Measure the quality of retrieval and parsing.", result_action="return_value"
)
DEFAULT = LocalOptions()


@app.command
def retrieval(
    path: Path,
    /,
    *,
    channels: str | None = None,
    profile: str = "default",
    run_out: Path | None = None,
    common: LocalOptions = DEFAULT,
) -> int:
    """Ingest a test set through the real pipeline, in a temporary data folder, and run all
    its queries.

    Parameters
    ----------
    path
        Folder with corpus.jsonl, queries.jsonl and qrels.tsv.
    channels
        Only use these channels, comma-separated, such as lexical,semantic.
    profile
        Retrieval profile.
    run_out
        File to write the rankings to, as a TREC run.
    """
    from anabranch.cli.options import parse_channels
    from anabranch.eval.runner import run_retrieval_eval
    from anabranch.process.logs import configure_logs
    from evaluation.retrieval_eval import write_run

    selected_channels = parse_channels(channels) if channels is not None else None
    settings = common.load_settings("logging.level=warning")
    configure_logs(settings.logging)
    report, run = asyncio.run(
        run_retrieval_eval(path, settings, channels=selected_channels, profile=profile)
    )
    if run_out is not None:
        write_run(run_out, run, f"anabranch-{profile}")
    if common.is_json:
        common.print_result(report)
    else:
        print_table(
            ("metric", "value"),
            [(name, f"{value:.4f}") for name, value in report["metrics"].items()],
        )
        print_stderr(
            f"{report['documents']} documents, {report['queries']} queries; p50 "
            f"{report['latency_ms']['p50']:.0f} ms",
            quiet=common.quiet,
        )
    return 0


@app.command
def documents(path: Path, /, *, common: LocalOptions = DEFAULT) -> int:
    """Parse files and compare the results with their ground truth.

    Parameters
    ----------
    path
        Folder with manifest.jsonl, files/ and ground_truth/.
    """
    from anabranch.eval.runner import run_documents_eval
    from anabranch.process.logs import configure_logs

    settings = common.load_settings("logging.level=warning")
    configure_logs(settings.logging)
    report = asyncio.run(run_documents_eval(path, settings))
    if common.is_json:
        common.print_result(report)
    else:
        rows = []
        for kind, figures in report["kinds"].items():
            metrics = [
                f"{name} {value:.3f}" for name, value in figures.items() if isinstance(value, float)
            ]
            rows.append((kind, figures.get("files"), ", ".join(metrics)))
        print_table(("kind", "files", "metrics"), rows)
    return 0
