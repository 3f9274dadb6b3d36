"""`anabranch eval candidates`, `eval drafts` and `eval import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number
from pydantic import ValidationError

from anabranch.cli.api_calls import call_api, get
from anabranch.cli.feedback import parse_grades, rate_run
from anabranch.cli.names import RUNS, RunId, get_by_name
from anabranch.cli.options import JUDGEMENT_STAGES, RemoteOptions
from anabranch.cli.output import print_stderr
from schemas.errors import ConfigurationError, InvalidRequest, NotFound
from schemas.judgements import MAX_GRADE, FeedbackRequest
from schemas.validation_errors import format_invalid_fields

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

candidates = App(
    name="candidates",
    help="List answered questions, and accept or reject them as golden questions.",
    result_action="return_value",
)
DEFAULT = RemoteOptions()
DRAFT_NOTES = ("document", "passage")
"""Fields of a draft that are for its reader."""


@candidates.command(name="list")
def list_candidates(
    *,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=500))] = 20,
    common: RemoteOptions = DEFAULT,
) -> int:
    """List answered questions without judged passages: useful answers first, then the most
    probable.

    Parameters
    ----------
    limit
        Maximum number of questions.
    """
    page = get("/v1/judgements/candidates", common, limit=limit)
    if common.is_json:
        common.print_result(page)
        return 0
    for item in page["items"]:
        probability = item["probability"]
        notes = [
            *([f"probability {probability:.2f}"] if probability is not None else []),
            *(["useful"] if item["useful"] else []),
        ]
        print(f"{item['run_id']}  {item['query']}" + (f"  ({', '.join(notes)})" if notes else ""))
        for passage in item["passages"]:
            title = passage["title"] or ""
            print(f"    [{passage['n']}] {passage['chunk_id']}  {title}: {passage['quote']}")
    return 0


@candidates.command
def accept(
    run: RunId,
    /,
    *,
    chunk: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    common: RemoteOptions = DEFAULT,
) -> int:
    """Accept the question of a run: its first cited passage contains the answer.

    Parameters
    ----------
    chunk
        Grade these passages instead: ID=GRADE, from 0 (does not help) to 3 (contains the answer).
        Repeatable.
    """
    grades = parse_grades(chunk) or {_fetch_lead_chunk(run, common): MAX_GRADE}
    return common.acknowledge(rate_run(run, {"grades": grades}, common), "accepted")


@candidates.command
def reject(run: RunId, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Reject the question of a run. It is not listed again."""
    return common.acknowledge(rate_run(run, {"candidate_rejected": True}, common), "rejected")


def drafts(
    file: Path,
    /,
    *,
    questions: Annotated[int, Parameter(validator=Number(gte=1, lte=1000))] = 50,
    seed: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Draft questions from the documents for an expert to edit: one per line, with its passage.

    Parameters
    ----------
    file
        File to write, as JSON Lines. An existing file is not replaced.
    questions
        Maximum number of questions.
    seed
        Selects the questions; the same seed selects the same ones.
    """
    items = get("/v1/judgements/drafts", common, questions=questions, seed=seed)["items"]
    lines = "".join(f"{json.dumps(item, ensure_ascii=False)}\n" for item in items)
    try:
        # An expert's edits must not be lost.
        with file.open("x", encoding="utf-8") as output:
            output.write(lines)
    except OSError as error:
        raise ConfigurationError(
            f"Cannot write to {file}: {error.strerror}.", remedy="Name another file."
        ) from error
    written = {"file": str(file), "questions": len(items)}
    return common.acknowledge(written, f"{len(items)} questions in {file}")


def import_questions(file: Path, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Import edited drafts as judged questions. Drafts whose passage no longer exists are skipped.

    Parameters
    ----------
    file
        JSON Lines with `query` and `grades`, as `eval drafts` writes them. Delete the lines of
        questions that are not worth asking.
    """
    questions = read_drafts(file)
    result = call_api(common, lambda client: _import(questions, client), stages=JUDGEMENT_STAGES)
    if common.is_json:
        common.print_result(result)
    else:
        for entry in result["skipped"]:
            print_stderr(f"skipped: {entry['query']}: {entry['reason']}")
        print_stderr(f"{result['imported']} questions imported", quiet=common.quiet)
    return 0


def read_drafts(file: Path) -> list[FeedbackRequest]:
    """Read edited drafts.

    Raises ConfigurationError for an unreadable file, and InvalidRequest with the line number.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"Cannot read {file}: {error}.", remedy="Name a file that `eval drafts` wrote."
        ) from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            draft = json.loads(line)
            if not isinstance(draft, dict) or not draft.get("query") or not draft.get("grades"):
                raise _build_line_error(file, number, "`query` and `grades` are needed")
            fields = {name: value for name, value in draft.items() if name not in DRAFT_NOTES}
            found.append(FeedbackRequest.model_validate(fields))
        except json.JSONDecodeError as error:
            raise _build_line_error(file, number, f"not valid JSON: {error.msg}") from error
        except ValidationError as error:
            problem = format_invalid_fields(error.errors()[:1])
            raise _build_line_error(file, number, problem) from error
    return found


def _build_line_error(file: Path, number: int, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"{file.name} line {number}: {problem}.",
        code="NOT_A_TEST_SET",
        remedy='Write {"query": "...", "grades": {"CHUNK_ID": 3}} per line.',
    )


async def _import(questions: list[FeedbackRequest], client: ApiClient) -> dict[str, Any]:
    skipped = []
    for question in questions:
        body = question.model_dump(mode="json", exclude_unset=True)
        try:
            await client.post("/v1/feedback", body)
        except NotFound as error:
            skipped.append({"query": question.query, "reason": error.detail})
    return {"imported": len(questions) - len(skipped), "skipped": skipped}


def _fetch_lead_chunk(run: str, common: RemoteOptions) -> str:
    response = get_by_name(RUNS, run, "", common)["response"] or {}
    if not response.get("citations"):
        raise InvalidRequest(
            f"Run {run} cites no passage.",
            remedy="Name the passage that contains the answer with --chunk ID=3.",
        )
    return str(response["citations"][0]["chunk_id"])
