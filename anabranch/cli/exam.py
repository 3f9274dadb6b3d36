"""`anabranch exam` and `anabranch calibrate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from anabranch.cli.api_calls import LONG_TIMEOUT_S, post
from anabranch.cli.options import JUDGEMENT_STAGES, RemoteOptions
from anabranch.cli.output import print_fields, print_stderr, print_table

DEFAULT = RemoteOptions()
MEASURES = ("passage_first", "passage_in_ten", "falsely_refused", "correctly_refused")


@Parameter(name="*")
@dataclass(frozen=True)
class ExamOptions:
    """Questions of an exam."""

    generation: Annotated[
        str | None, Parameter(help="Generation to examine, instead of the live one.")
    ] = None
    questions: Annotated[
        int, Parameter(help="Maximum number of questions. Half are asked without their document.")
    ] = 200
    seed: Annotated[
        int, Parameter(help="Selects the questions; the same seed selects the same ones.")
    ] = 0
    profile: Annotated[str, Parameter(help="Retrieval profile.")] = "default"

    def to_request(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "questions": self.questions,
            "seed": self.seed,
            "profile": self.profile,
        }


DEFAULT_EXAM = ExamOptions()


def exam(*, options: ExamOptions = DEFAULT_EXAM, common: RemoteOptions = DEFAULT) -> int:
    """Examine an index with questions made from its own documents: definitions, table cells,
    dates and amounts. Needs no model.
    """
    report = post(
        "/v1/exams",
        options.to_request(),
        common,
        stages=JUDGEMENT_STAGES,
        timeout_s=LONG_TIMEOUT_S,
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
    common: RemoteOptions = DEFAULT,
) -> int:
    """Learn when to refuse questions and trim passages: from judgements if there are enough, else
    from an exam.

    Parameters
    ----------
    coverage
        Share of the questions whose right passage must survive trimming.
    false_refusals
        Share of the answerable questions that may be refused.
    """
    body = options.to_request() | {"coverage": coverage, "false_refusals": false_refusals}
    result = post(
        "/v1/calibrations", body, common, stages=JUDGEMENT_STAGES, timeout_s=LONG_TIMEOUT_S
    )
    if common.is_json:
        common.print_result(result)
        return 0
    names = ("generation", "basis", "questions", "coverage", "min_confidence", "trim")
    print_fields({name: result[name] for name in names})
    if reason := result["default_reason"]:
        print_stderr(DEFAULT_REASONS[reason], quiet=common.quiet)
    return 0


def _print_report(report: dict[str, Any], common: RemoteOptions) -> None:
    groups = [
        ("all", report["overall"]),
        *report["kinds"].items(),
        *((f"collection {name or '-'}", value) for name, value in report["collections"].items()),
    ]
    print_table(
        ("", *(name.replace("_", " ") for name in MEASURES)),
        [
            (name, *(_format_share(group[measure]) for measure in MEASURES))
            for name, group in groups
        ],
    )
    if report["weakest_documents"]:
        print()
        print_table(
            ("weakest documents", "wrong", "questions"),
            [
                (entry["name"] or entry["document_id"], entry["wrong"], entry["questions"])
                for entry in report["weakest_documents"]
            ],
        )
    print_stderr(
        f"{report['questions']} questions over {report['generation']}, {report['failed']} failed",
        quiet=common.quiet,
    )
    if not report["questions"]:
        print_stderr("no document holds a defined term, a table, a date or an amount")


def _format_share(share: dict[str, Any]) -> str:
    if share["value"] is None:
        return "-"
    return f"{share['value']:.2f} [{share['low']:.2f}, {share['high']:.2f}] of {share['n']}"
