"""`anabranch feedback`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from anabranch.cli.names import RUNS, RunId, call_by_name
from anabranch.cli.options import JUDGEMENT_STAGES, RemoteOptions, make_conflict_error
from schemas.errors import ConfigurationError, InvalidRequest

Flag = Parameter(negative="")
GRADES = ("0", "1", "2", "3")
DEFAULT = RemoteOptions()


def feedback(
    run: RunId,
    /,
    *,
    up: Annotated[bool, Flag] = False,
    down: Annotated[bool, Flag] = False,
    chunk: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    answer: str | None = None,
    note: str | None = None,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Rate an answer or a passage. Comparisons of generations use the ratings.

    Parameters
    ----------
    up
        Rate the answer as useful.
    down
        Rate the answer as not useful.
    chunk
        Grade a passage: ID=GRADE, from 0 (does not help) to 3 (contains the answer). Repeatable.
    answer
        Correct answer.
    note
        Free text.
    """
    if up and down:
        raise make_conflict_error("--up", "--down")
    grades = parse_grades(chunk)
    useful = up if up or down else None
    body = {
        "useful": useful,
        "grades": grades,
        "corrected_answer": answer,
        "note": note,
    }
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
