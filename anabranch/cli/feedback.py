"""`anabranch feedback`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from uuid import UUID

from cyclopts import Parameter

from anabranch.cli.options import Remote
from anabranch.cli.output import say
from schemas.errors import ConfigurationError

Flag = Parameter(negative="")
GRADES = ("0", "1", "2", "3")
STAGES = ("control", "runs", "judgements")
DEFAULT = Remote()


def feedback(
    run: UUID,
    /,
    *,
    up: Annotated[bool, Flag] = False,
    down: Annotated[bool, Flag] = False,
    chunk: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    answer: str | None = None,
    note: str | None = None,
    common: Remote = DEFAULT,
) -> int:
    """Say whether an answer, or a passage, helps. Comparisons of generations use what is said.

    Parameters
    ----------
    run
        `run_id` of the answer.
    up
        It was useful.
    down
        It was not.
    chunk
        A passage with its grade, as ID=2: 0 does not help, 3 is the answer.
    answer
        What the answer should have been.
    note
        Anything else.
    """
    body = {"run_id": str(run), "useful": _useful(up, down), "grades": dict(map(_graded, chunk)), "corrected_answer": answer, "note": note}
    said = {name: value for name, value in body.items() if value not in (None, {})}
    if len(said) == 1:
        raise ConfigurationError("nothing is said of the answer", remedy="Give --up, --down, --chunk, --answer or --note.")
    told = asyncio.run(_post(said, common))
    if common.json:
        common.show(told)
    else:
        say(f"kept, with {told['judgements']} judged passages", quiet=common.quiet)
    return 0


def _useful(up: bool, down: bool) -> bool | None:
    from schemas.errors import InvalidRequest

    if up and down:
        raise InvalidRequest("--up and --down contradict each other", remedy="Give one of them.")
    return True if up else False if down else None


def _graded(text: str) -> tuple[str, int]:
    from schemas.errors import InvalidRequest

    identity, _, grade = text.partition("=")
    if grade not in GRADES:
        raise InvalidRequest(f"--chunk {text} is no ID=GRADE", remedy="Write the chunk's id, an equals sign, and 0, 1, 2 or 3.")
    return identity, int(grade)


async def _post(body: dict[str, Any], common: Remote) -> dict[str, Any]:
    from anabranch.cli.serving import api_client

    async with api_client(common, stages=STAGES) as client:
        return await client.post("/v1/feedback", body)
