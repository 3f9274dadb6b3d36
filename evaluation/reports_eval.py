"""Check single values of files: that they are parsed, found and answered unchanged.

A set is a folder of files with `cases.jsonl`. A case names its `file` and `kind`, and any of
`question` with `must`, `must_not` or `refused`, and `markdown_must`, `markdown_must_not` and
`markdown_or_warning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from evaluation.answers_eval import contains, normalize_text
from evaluation.metrics import SCHEMA_VERSION
from evaluation.set_files import make_set_error, read_lines
from schemas.questions import QueryResponse

_REMEDY = (
    "Add cases.jsonl with {file, kind} and any of question, must, must_not, refused, "
    "markdown_must, markdown_must_not and markdown_or_warning per line, beside the files."
)


class ReportCase(BaseModel):
    """Conditions on one file, all of which have to hold.

    The answer must show every text of `must` and none of `must_not`, or be refused. The Markdown
    holds its texts to the letter; one of `markdown_or_warning` is in the Markdown or a warning.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    kind: str
    question: str = ""
    must: list[str] = []
    must_not: list[str] = []
    refused: bool | None = None
    markdown_must: list[str] = []
    markdown_must_not: list[str] = []
    markdown_or_warning: list[str] = []


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The indexed Markdown of a file, and the remarks about it."""

    markdown: str
    warnings: tuple[str, ...] = ()
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case, with a line for each condition that does not hold."""

    case: ReportCase
    faults: tuple[str, ...]
    answer: str | None = None

    @property
    def is_right(self) -> bool:
        return not self.faults


def read_report_cases(folder: Path) -> list[ReportCase]:
    """Read the cases. Raises InvalidRequest if the folder is invalid."""
    path = folder / "cases.jsonl"
    cases = read_lines(path, ReportCase.model_validate, _REMEDY)
    faults = [f"Case {n} {fault}" for n, case in enumerate(cases, 1) if (fault := _check(case))]
    faults += [
        f"{file} is no file of the set"
        for file in dict.fromkeys(case.file for case in cases)
        # A case must not read files from elsewhere.
        if not (path := folder / file).is_file()
        or not path.resolve().is_relative_to(folder.resolve())
    ]
    if faults or not cases:
        raise make_set_error(
            f"{folder} is not a set of cases: {'; '.join(faults[:5]) or 'cases.jsonl is empty'}.",
            _REMEDY,
        )
    return cases


def _check(case: ReportCase) -> str | None:
    """Return what makes a case one that cannot fail or cannot be checked, if anything."""
    asks = bool(case.must or case.must_not) or case.refused is not None
    if asks and not case.question:
        return "has no question"
    if not asks and case.question:
        return "has a question without must, must_not or refused"
    if not asks and not (case.markdown_must or case.markdown_must_not or case.markdown_or_warning):
        return "has no condition"
    return None


def score_case(case: ReportCase, parsed: ParsedFile, response: QueryResponse | None) -> CaseResult:
    faults = [
        f"the Markdown lacks {text!r}" for text in case.markdown_must if text not in parsed.markdown
    ]
    faults += [
        f"the Markdown holds {text!r}" for text in case.markdown_must_not if text in parsed.markdown
    ]
    read = [parsed.markdown, *parsed.warnings]
    if case.markdown_or_warning and not any(
        wanted.lower() in text.lower() for wanted in case.markdown_or_warning for text in read
    ):
        faults.append(f"no Markdown or warning holds any of {case.markdown_or_warning}")
    # Nothing was parsed, so that nothing wrong could be: no success.
    if parsed.error_code and not (case.markdown_or_warning or case.refused):
        faults.append(f"the file failed with {parsed.error_code}")
    if response is None:
        return CaseResult(case, tuple(faults))
    answer = "" if response.refused else response.answer or ""
    shown = normalize_text(answer)
    if case.refused is not None and case.refused != (not answer):
        faults.append("was answered" if case.refused else "was refused")
    elif (case.must or case.must_not) and not answer:
        faults.append("was refused")
    else:
        faults += [f"the answer lacks {text!r}" for text in case.must if not contains(shown, text)]
        faults += [f"the answer shows {text!r}" for text in case.must_not if contains(shown, text)]
    return CaseResult(case, tuple(faults), response.answer if answer else response.message)


def build_reports_report(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Return the counts of right cases, overall and by kind, and every wrong case."""
    kinds = sorted({result.case.kind for result in results})
    return {
        "schema_version": SCHEMA_VERSION,
        "cases": len(results),
        "right": sum(result.is_right for result in results),
        "kinds": {
            kind: {
                "cases": sum(result.case.kind == kind for result in results),
                "right": sum(result.is_right for result in results if result.case.kind == kind),
            }
            for kind in kinds
        },
        "wrong": [
            {
                "file": result.case.file,
                "kind": result.case.kind,
                "question": result.case.question,
                "faults": list(result.faults),
                "answer": result.answer,
            }
            for result in results
            if not result.is_right
        ],
    }
