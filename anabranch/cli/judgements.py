"""Judgements of passages: `anabranch feedback`, `eval candidates`, `eval drafts`, `eval import`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import call_api, get
from anabranch.cli.names import RUNS, RunId, call_by_name, get_by_name
from anabranch.cli.options import (
    JUDGEMENT_STAGES,
    REMOTE,
    RemoteOptions,
    make_conflict_error,
    make_group,
)
from anabranch.cli.output import print_stderr
from schemas.errors import ConfigurationError, InvalidRequest, NotFound
from schemas.judgements import MAX_GRADE, FeedbackRequest

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

candidates = make_group("candidates")
GRADES = ("0", "1", "2", "3")
DRAFT_NOTES = ("document", "passage")
"""Fields of a draft that are for its reader."""


def feedback(
    run: RunId,
    /,
    *,
    up: bool = False,
    down: bool = False,
    chunk: tuple[str, ...] = (),
    answer: str | None = None,
    note: str | None = None,
    common: RemoteOptions = REMOTE,
) -> int:
    """Rate an answer or a passage. Comparisons of generations use the ratings.

    Args:
        up: Rate the answer as useful.
        down: Rate the answer as not useful.
        chunk: Grade a passage: ID=GRADE, from 0 (does not help) to 3 (contains the answer).
            Repeatable.
        answer: Correct answer.
        note: Free text.
    """
    if up and down:
        raise make_conflict_error("--up", "--down")
    useful, grades = up if up or down else None, parse_grades(chunk)
    body = {"useful": useful, "grades": grades, "corrected_answer": answer, "note": note}
    set_fields = {name: value for name, value in body.items() if value not in (None, {})}
    if not set_fields:
        raise ConfigurationError(
            "No rating was given.", remedy="Use --up, --down, --chunk, --answer or --note."
        )
    result = rate_run(run, set_fields, common)
    return common.acknowledge(result, f"stored, with {result['judgements']} judged passages")


def rate_run(run: str, ratings: dict[str, Any], common: RemoteOptions) -> dict[str, Any]:
    return call_by_name(
        RUNS,
        run,
        common,
        lambda client, run_id: client.post("/v1/feedback", {"run_id": run_id, **ratings}),
        stages=JUDGEMENT_STAGES,
    )


def parse_grades(chunks: Sequence[str]) -> dict[str, int]:
    """Parse values of --chunk, ID=GRADE. Raises InvalidRequest."""
    grades = {}
    for text in chunks:
        chunk_id, _, grade = text.partition("=")
        if grade not in GRADES:
            raise InvalidRequest(
                f"Invalid --chunk {text}.", remedy="Use ID=GRADE, with a grade of 0, 1, 2 or 3."
            )
        grades[chunk_id] = int(grade)
    return grades


@candidates.command(name="list")
def list_candidates(
    *,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=500))] = 20,
    common: RemoteOptions = REMOTE,
) -> int:
    """List answered questions without judged passages: useful answers first, then the most
    probable.

    Args:
        limit: Maximum number of questions.
    """
    page = get("/v1/judgements/candidates", common, limit=limit)
    if common.print_if_json(page):
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
def accept(run: RunId, /, *, chunk: tuple[str, ...] = (), common: RemoteOptions = REMOTE) -> int:
    """Accept the question of a run: its first cited passage contains the answer.

    Args:
        chunk: Grade these passages instead: ID=GRADE, from 0 (does not help) to 3 (contains the
            answer). Repeatable.
    """
    grades = parse_grades(chunk) or {_fetch_lead_chunk(run, common): MAX_GRADE}
    return common.acknowledge(rate_run(run, {"grades": grades}, common), "accepted")


@candidates.command
def reject(run: RunId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Reject the question of a run. It is not listed again."""
    return common.acknowledge(rate_run(run, {"candidate_rejected": True}, common), "rejected")


def drafts(
    file: Path,
    /,
    *,
    questions: Annotated[int, Parameter(validator=Number(gte=1, lte=1000))] = 50,
    seed: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    common: RemoteOptions = REMOTE,
) -> int:
    """Draft questions from the documents for an expert to edit: one per line, with its passage.

    Args:
        file: File to write, as JSON Lines. An existing file is not replaced.
        questions: Maximum number of questions.
        seed: Selects the questions; the same seed selects the same ones.
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


def import_questions(file: Path, /, *, common: RemoteOptions = REMOTE) -> int:
    """Import edited drafts as judged questions. Drafts whose passage no longer exists are skipped.

    Args:
        file: JSON Lines with `query` and `grades`, as `eval drafts` writes them. Delete the lines
            of questions that are not worth asking.
    """
    questions = read_drafts(file)
    result = call_api(common, lambda client: _import(questions, client), stages=JUDGEMENT_STAGES)
    if not common.print_if_json(result):
        for entry in result["skipped"]:
            print_stderr(f"skipped: {entry['query']}: {entry['reason']}")
        common.print_note(f"{result['imported']} questions imported")
    return 0


def read_drafts(file: Path) -> list[FeedbackRequest]:
    """Read edited drafts. Raises InvalidRequest with the line number."""
    from evaluation.set_files import read_lines

    remedy = 'Write {"query": "...", "grades": {"CHUNK_ID": 3}} per line, as `eval drafts` does.'
    return read_lines(file, _parse_draft, remedy)


def _parse_draft(draft: Any) -> FeedbackRequest:
    if isinstance(draft, dict):
        required = {name: draft[name] for name in ("query", "grades")}
        draft = {name: draft[name] for name in draft if name not in DRAFT_NOTES} | required
    return FeedbackRequest.model_validate(draft)


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
