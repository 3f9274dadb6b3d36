"""`anabranch eval`, `anabranch exam` and `anabranch calibrate`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from anabranch.cli.api_calls import LONG_TIMEOUT_S, format_time, get, post
from anabranch.cli.options import (
    JUDGEMENT_STAGES,
    LOCAL,
    REMOTE,
    LocalOptions,
    RemoteOptions,
    make_group,
    parse_channels,
)
from anabranch.cli.output import print_fields, print_stderr, print_table
from schemas.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.config.settings import Settings

KIND_MEASURES = ("right", "lead_right", "falsely_refused", "correctly_refused", "routing_accuracy")
app = make_group("eval")


def _load_settings(common: LocalOptions) -> Settings:
    """Load the settings, and log warnings only: an evaluation processes many documents."""
    from anabranch.process.logs import configure_logs

    settings = common.load_settings("logging.level=warning")
    configure_logs(settings.logging)
    return settings


@app.command
def retrieval(
    path: Path,
    /,
    *,
    channels: str | None = None,
    profile: str = "default",
    run_out: Path | None = None,
    common: LocalOptions = LOCAL,
) -> int:
    """Ingest a test set through the real pipeline, in a temporary data folder, and run all
    its queries.

    Args:
        path: Folder with corpus.jsonl, queries.jsonl and qrels.tsv.
        channels: Only use these channels, comma-separated, such as lexical,semantic.
        profile: Retrieval profile.
        run_out: File to write the rankings to, as a TREC run.
    """
    from anabranch.eval.runner import run_retrieval_eval
    from evaluation.retrieval_eval import write_run

    selected_channels = parse_channels(channels) if channels is not None else None
    settings = _load_settings(common)
    report, run = asyncio.run(
        run_retrieval_eval(path, settings, channels=selected_channels, profile=profile)
    )
    if run_out is not None:
        write_run(run_out, run, f"anabranch-{profile}")
    if not common.print_if_json(report):
        print_table(
            ("metric", "value"),
            [(name, f"{value:.4f}") for name, value in report["metrics"].items()],
        )
        common.print_note(
            f"{report['documents']} documents, {report['queries']} queries; p50 "
            f"{report['latency_ms']['p50']:.0f} ms"
        )
    return 0


@app.command
def answers(
    path: Path,
    /,
    *,
    profile: str = "default",
    responses_out: Path | None = None,
    common: LocalOptions = LOCAL,
) -> int:
    """Ingest a set of files through the real pipeline, in a temporary data folder, ask all its
    questions, and compare the answers with gold texts.

    Args:
        path: Folder with manifest.jsonl, questions.jsonl and the files.
        profile: Retrieval profile.
        responses_out: File to write each question's id and response to, as JSON Lines.
    """
    from anabranch.eval.runner import run_answers_eval
    from evaluation.answers_eval import format_measures, write_responses

    settings = _load_settings(common)
    report, responses = asyncio.run(run_answers_eval(path, settings, profile=profile))
    if responses_out is not None:
        write_responses(responses_out, responses)
    if not common.print_if_json(report):
        print_table(("measure", "value", "95 %"), format_measures(report["overall"]))
        print_table(
            ("kind", "questions", *(name.replace("_", " ") for name in KIND_MEASURES)),
            [
                (
                    kind,
                    figures["n"],
                    *(
                        f"{figures[name]['value']:.2f}" if name in figures else ""
                        for name in KIND_MEASURES
                    ),
                )
                for kind, figures in report["kinds"].items()
            ],
        )
        common.print_note(
            f"{report['questions']} questions; answered p50 {report['latency_ms']['p50']:.0f} ms"
        )
    return 0


@app.command
def reports(path: Path, /, *, profile: str = "default", common: LocalOptions = LOCAL) -> int:
    """Ingest each file of a folder into a collection of its own, in a temporary data folder, and
    check single values in its Markdown and in answers.

    Args:
        path: Folder with cases.jsonl and the files.
        profile: Retrieval profile.
    """
    from anabranch.eval.runner import run_reports_eval

    settings = _load_settings(common)
    report, results = asyncio.run(run_reports_eval(path, settings, profile=profile))
    if not common.print_if_json(report):
        print_table(
            ("kind", "cases", "right"),
            [
                (kind, str(counts["cases"]), str(counts["right"]))
                for kind, counts in report["kinds"].items()
            ],
        )
        for result in results:
            if not result.is_right:
                common.print_note(
                    f"{result.case.file}: {result.case.question or 'Markdown'}: "
                    f"{'; '.join(result.faults)}"
                )
        common.print_note(f"{report['right']} of {report['cases']} cases are right")
    return 0


@app.command
def documents(path: Path, /, *, common: LocalOptions = LOCAL) -> int:
    """Parse files and compare the results with their ground truth.

    Args:
        path: Folder with manifest.jsonl, files/ and ground_truth/.
    """
    from anabranch.eval.runner import run_documents_eval

    settings = _load_settings(common)
    report = asyncio.run(run_documents_eval(path, settings))
    if not common.print_if_json(report):
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
    common: RemoteOptions = REMOTE,
) -> int:
    """Write judgements, hard negatives and difficult questions to files.

    Args:
        folder: Folder to write golden.jsonl, queries.jsonl, qrels.tsv, hard_negatives.jsonl and
            difficult.jsonl to. Existing files are replaced.
        since: Start of the period (UTC unless it has a zone).
        until: End of the period (UTC unless it has a zone).
    """
    from evaluation.judgements import write_judgement_export

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
    "anabranch.cli.judgements:candidates",
    name="candidates",
    help="List answered questions, and accept or reject them as golden questions.",
)
app.command(
    "anabranch.cli.judgements:drafts",
    name="drafts",
    help="Draft questions from the documents for an expert to edit.",
)
app.command(
    "anabranch.cli.judgements:import_questions",
    name="import",
    help="Import edited drafts as judged questions.",
)


MEASURES = ("passage_first", "passage_in_ten", "falsely_refused", "correctly_refused")


@Parameter(name="*")
@dataclass(frozen=True)
class ExamOptions:
    """Questions of an exam."""

    generation: str | None = None
    """Generation to examine, instead of the live one."""
    questions: int = 200
    """Maximum number of questions. Half are asked without their document."""
    seed: int = 0
    """Selects the questions; the same seed selects the same ones."""
    profile: str = "default"
    """Retrieval profile."""


DEFAULT_EXAM = ExamOptions()


def exam(*, options: ExamOptions = DEFAULT_EXAM, common: RemoteOptions = REMOTE) -> int:
    """Examine an index with questions made from its own documents: definitions, table cells,
    dates and amounts. Needs no model.
    """
    report = post(
        "/v1/exams", asdict(options), common, stages=JUDGEMENT_STAGES, timeout_s=LONG_TIMEOUT_S
    )
    return common.show(report, lambda: _print_report(report, common))


DEFAULT_REASONS = {
    "too_few_questions": "too few questions to learn from: the default thresholds stay",
    "interval": "the default threshold of refusal stays: so few questions do not show that a "
    "stricter one keeps --false-refusals",
    "no_gain": "the default threshold of refusal stays: a stricter one is not shown to refuse more "
    "of the questions that the documents do not answer",
}


def calibrate(
    *,
    coverage: float = 0.9,
    false_refusals: float = 0.05,
    options: ExamOptions = DEFAULT_EXAM,
    common: RemoteOptions = REMOTE,
) -> int:
    """Learn when to refuse questions and trim passages: from judgements if there are enough, else
    from an exam.

    Args:
        coverage: Share of the questions whose right passage must survive trimming.
        false_refusals: Share of the answerable questions that may be refused.
    """
    body = asdict(options) | {"coverage": coverage, "false_refusals": false_refusals}
    result = post(
        "/v1/calibrations", body, common, stages=JUDGEMENT_STAGES, timeout_s=LONG_TIMEOUT_S
    )
    if common.print_if_json(result):
        return 0
    names = ("generation", "basis", "questions", "coverage", "min_confidence", "trim")
    print_fields({name: result[name] for name in names})
    if reason := result["default_reason"]:
        common.print_note(DEFAULT_REASONS[reason])
    return 0


def _print_report(report: dict[str, Any], common: RemoteOptions) -> None:
    groups = [
        ("all", report["overall"]),
        *report["kinds"].items(),
        *((f"collection {name or '-'}", value) for name, value in report["collections"].items()),
    ]
    rows = [
        (
            name,
            measure,
            f"{share['value']:.2f}",
            f"{share['low']:.2f} to {share['high']:.2f}",
            share["n"],
        )
        for name, group in groups
        for measure in MEASURES
        if (share := group[measure])["value"] is not None
    ]
    common.print_table(("questions", "measure", "share", "95 %", "of"), rows)
    if report["weakest_documents"]:
        print()
        print_table(
            ("weakest documents", "wrong", "questions"),
            [
                (entry["name"] or entry["document_id"], entry["wrong"], entry["questions"])
                for entry in report["weakest_documents"]
            ],
        )
    common.print_note(
        f"{report['questions']} questions over {report['generation']}, {report['failed']} failed"
    )
    if not report["questions"]:
        print_stderr("no document holds a defined term, a table, a date or an amount")
