"""`anabranch eval`."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

from cyclopts import App

from anabranch.cli.options import LocalOptions, RemoteOptions
from anabranch.cli.output import print_stderr, print_table
from schemas.errors import ConfigurationError

app = App(
    name="eval",
    help="Measure the quality of retrieval, answers and parsing.",
    result_action="return_value",
)
DEFAULT = LocalOptions()
DEFAULT_REMOTE = RemoteOptions()


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
def reports(path: Path, /, *, profile: str = "default", common: LocalOptions = DEFAULT) -> int:
    """Ingest each file of a folder into a collection of its own, in a temporary data folder, and
    check single values in its Markdown and in answers.

    Parameters
    ----------
    path
        Folder with cases.jsonl and the files.
    profile
        Retrieval profile.
    """
    from anabranch.eval.runner import run_reports_eval
    from anabranch.process.logs import configure_logs

    settings = common.load_settings("logging.level=warning")
    configure_logs(settings.logging)
    report, results = asyncio.run(run_reports_eval(path, settings, profile=profile))
    if common.is_json:
        common.print_result(report)
    else:
        print_table(
            ("kind", "cases", "right"),
            [
                (kind, str(counts["cases"]), str(counts["right"]))
                for kind, counts in report["kinds"].items()
            ],
        )
        for result in results:
            if not result.is_right:
                print_stderr(
                    f"{result.case.file}: {result.case.question or 'Markdown'}: "
                    f"{'; '.join(result.faults)}",
                    quiet=common.quiet,
                )
        print_stderr(f"{report['right']} of {report['cases']} cases are right", quiet=common.quiet)
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


app.command(
    "anabranch.cli.generations:compare",
    name="compare",
    help="Run the same queries against two generations, or two profiles of one (`--profile-b`).",
)


@app.command
def export(
    folder: Path,
    /,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    common: RemoteOptions = DEFAULT_REMOTE,
) -> int:
    """Write judgements, hard negatives and difficult questions to files.

    Parameters
    ----------
    folder
        Folder to write golden.jsonl, queries.jsonl, qrels.tsv, hard_negatives.jsonl and
        difficult.jsonl to. Existing files are replaced.
    since
        Start of the period (UTC unless it has a zone).
    until
        End of the period (UTC unless it has a zone).
    """
    from anabranch.cli.api_calls import format_time, get
    from evaluation.judgement_export import write_judgement_export

    period = {"since": format_time(since), "until": format_time(until)}
    export = get("/v1/judgements", common, **{name: time for name, time in period.items() if time})
    try:
        counts = write_judgement_export(folder, export)
    except OSError as error:
        raise ConfigurationError(
            f"Cannot write to {folder}: {error.strerror}.", remedy="Name another folder."
        ) from error
    written = {"folder": str(folder), "lines": counts}
    return common.show(written, lambda: print_table(("file", "lines"), list(counts.items())))


app.command(
    "anabranch.cli.golden:candidates",
    name="candidates",
    help="List answered questions, and accept or reject them as golden questions.",
)
app.command(
    "anabranch.cli.golden:drafts",
    name="drafts",
    help="Draft questions from the documents for an expert to edit.",
)
app.command(
    "anabranch.cli.golden:import_questions",
    name="import",
    help="Import edited drafts as judged questions.",
)
