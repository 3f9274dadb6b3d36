"""`anabranch eval`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cyclopts import App

from anabranch.cli.options import LocalOptions
from anabranch.cli.output import print_stderr, print_table

app = App(
    name="eval",
    help="Measure the quality of retrieval, answers and parsing.",
    result_action="return_value",
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
def answers(
    path: Path,
    /,
    *,
    profile: str = "default",
    responses_out: Path | None = None,
    common: LocalOptions = DEFAULT,
) -> int:
    """Ingest a set of files through the real pipeline, in a temporary data folder, ask all its
    questions, and compare the answers with gold texts.

    Parameters
    ----------
    path
        Folder with manifest.jsonl, questions.jsonl and the files.
    profile
        Retrieval profile.
    responses_out
        File to write each question's id and response to, as JSON Lines.
    """
    from anabranch.eval.runner import run_answers_eval
    from anabranch.process.logs import configure_logs
    from evaluation.answers_eval import format_measures, write_responses

    settings = common.load_settings("logging.level=warning")
    configure_logs(settings.logging)
    report, responses = asyncio.run(run_answers_eval(path, settings, profile=profile))
    if responses_out is not None:
        write_responses(responses_out, responses)
    if common.is_json:
        common.print_result(report)
    else:
        print_table(("measure", "value", "95 %"), format_measures(report["overall"]))
        print_table(
            (
                "kind",
                "questions",
                "right",
                "lead right",
                "falsely refused",
                "correctly refused",
                "routed right",
            ),
            [
                (
                    kind,
                    str(figures["n"]),
                    *(
                        f"{figures[name]['value']:.2f}" if name in figures else ""
                        for name in (
                            "right",
                            "lead_right",
                            "falsely_refused",
                            "correctly_refused",
                            "routing_accuracy",
                        )
                    ),
                )
                for kind, figures in report["kinds"].items()
            ],
        )
        print_stderr(
            f"{report['questions']} questions; answered p50 {report['latency_ms']['p50']:.0f} ms",
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
