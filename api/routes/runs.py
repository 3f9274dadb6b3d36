"""Queries as runs: start, follow and cancel them; list, export, rerun, compare and explain recorded
ones.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from io import StringIO
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import format_sse_event
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import (
    Caller,
    FromTime,
    IdPrefix,
    PageCursor,
    PageLimit,
    PageSort,
    ServicesDep,
    UntilTime,
)
from api.sse import MEDIA_TYPE, format_event, stream_messages
from schemas.errors import InvalidRequest
from schemas.models import Request
from schemas.questions import QueryRequest, QueryResponse, SearchResponse
from schemas.responses import JsonObject, Page, ResponseModel, RunState, RunSummary, Time
from schemas.run_records import (
    Bisection,
    CounterfactualAnswer,
    RunDiff,
    RunFilters,
    RunMessage,
    RunOutcome,
    RunStatus,
    RunTelemetry,
)

router = APIRouter(route_class=OperationRoute, tags=["runs"])

EVENTS_DESCRIPTION = """Server-sent events, each with one line of JSON. The `id` is for \
`Last-Event-ID`:

| event | data |
| --- | --- |
| `step` | `{name, ms}`: a step starts (`ms` null) or has ended |
| `delta` | `{draft, text}`: unverified text of the answer while a chat model writes it; not \
stored, so only the process that runs it sends it |
| `answer` | the verified response of `/v1/query`; the last event |
| `stopped` | `{state, stopped_at, step, code, detail, remedy}`, in place of `answer` |

Comments keep the connection open. Closing it does not stop the run. After the last event, a \
reconnect gets 204."""
STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "description": EVENTS_DESCRIPTION}}}
    },
    204: {"description": "The last event was received."},
}
END_ID = "end"
FORMATTED_RUNS = 200
# Cells that begin so are formulas of spreadsheets, which call addresses and programs (OWASP, CSV
# injection). Spreadsheets skip white space before them; `＝` and the like are read as ASCII.
FORMULA = re.compile(r"[\t\r\n]|\W*[=+@＝＋－＠-]")


class Run(ResponseModel):
    """A recorded query. Its parts are as the version that answered it recorded them."""

    run_id: UUID
    kind: Literal["query", "search"] | None
    request: JsonObject | None = Field(description="Body of the request, with its defaults.")
    received_at: Time | None
    answered_at: Time | None = Field(description="Null until the answer is recorded.")
    state: RunState
    generation: str | None
    response: JsonObject | None = Field(description="Body of the response.")
    candidates: list[JsonObject] | None = Field(description="Passages with all their scores.")
    numbers: JsonObject | None = Field(description="Intermediate results of the steps.")
    run_record: JsonObject | None
    """The recorded inputs of a rerun."""


class StartedRun(ResponseModel):
    run_id: UUID


class RunArtifacts(ResponseModel):
    """Results of the steps of a run. All are null until the answer is recorded."""

    run_id: UUID
    state: RunState
    question: str | None = Field(description="The question as it was searched for.")
    language: str | None
    keywords: list[str] | None
    route: JsonObject | None = Field(description="Mode, and who decided it.")
    candidates: list[JsonObject] | None
    """Passages of all channels with all their scores."""
    numbers: JsonObject | None = Field(description="Every other number that entered a sum.")
    contexts: list[JsonObject] | None = Field(description="Passages that were read.")
    draft: JsonObject | None = Field(description="How the answer was written.")
    judge: JsonObject | None = Field(description="Checks of the answer and the decision.")
    prompts: JsonObject | None = Field(description="SHA-256 of each prompt, by task.")
    trace: JsonObject | None
    answer: str | None
    citations: list[JsonObject] | None


class RunDiffRequest(Request):
    other: UUID | None = None
    """Run to compare with. By default the query runs again now, as a new run."""


class BisectRequest(RunDiffRequest):
    start: str | None = Field(None, max_length=120, examples=["accepted[0]@75"])
    """Position of the log: only revisions received later are searched. Default: of the run."""
    end: str | None = Field(None, max_length=120, examples=["accepted[0]@90"])
    """Position of the log: only revisions up to it are searched. Default: of the other run."""


class Rerun(ResponseModel):
    """The answer made again from what was recorded, compared with the recorded one."""

    run_id: UUID
    kind: Literal["query", "search"]
    same: bool
    differences: list[str]
    missing: list[str] = Field(description="Passages whose text no longer exists.")
    response: QueryResponse | SearchResponse


async def get_filters(
    text: Annotated[
        str | None,
        Query(min_length=1, max_length=1024, description="In the question or the answer."),
    ] = None,
    outcome: Annotated[
        RunOutcome | None,
        Query(description="`answered`: searches too. `stopped`: before there was an answer."),
    ] = None,
    profile: Annotated[str | None, Query(max_length=64)] = None,
    since: FromTime = None,
    until: UntilTime = None,
    id_prefix: IdPrefix = None,
) -> RunFilters:
    return RunFilters(
        text=text, outcome=outcome, profile=profile, since=since, until=until, id_prefix=id_prefix
    )


FiltersDep = Annotated[RunFilters, Depends(get_filters)]


@router.get("/runs", operation_id="list_runs")
@operation("reader")
async def list_runs(
    services: ServicesDep,
    caller: Caller,
    filters: FiltersDep,
    sort: PageSort = None,
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> Page[RunSummary]:
    """List runs, the latest first."""
    items, next_cursor = await services.listings.list_runs(
        caller, after=after, limit=limit, sort=sort, **filters
    )
    return Page[RunSummary].model_validate({"items": items, "next": next_cursor})


# Before the routes of one run, whose pattern would take `export` for an id.
@router.get(
    "/runs/export",
    operation_id="export_runs",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {
                "text/csv": {"schema": {"type": "string"}},
                "application/jsonl": {"schema": RunTelemetry.model_json_schema()},
            }
        }
    },
)
@operation("reader")
async def export_runs(
    services: ServicesDep,
    caller: Caller,
    filters: FiltersDep,
    format: Annotated[  # noqa: A002
        Literal["csv", "jsonl"],
        Query(description="`csv` (RFC 4180, with LF) begins with a heading."),
    ] = "csv",
) -> StreamingResponse:
    """Export the measurements of runs, the latest first: sources, scores, size of the graph, model
    calls, tokens and feedback. A line is a run.

    In `csv`, a text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    pages = services.listings.iterate_telemetry(caller, **filters)
    # Fetched before the response begins, so that an error is a problem response.
    first_page = await anext(pages)

    async def generate() -> AsyncIterator[str]:
        async with aclosing(pages):
            if format == "csv":
                yield format_csv([list(RunTelemetry.model_fields)])
            for text in _format_telemetry(first_page, format):
                yield text
            async for page in pages:
                for text in _format_telemetry(page, format):
                    yield text

    media_type = "text/csv; charset=utf-8" if format == "csv" else "application/jsonl"
    return StreamingResponse(generate(), media_type=media_type)


def _format_telemetry(page: list[dict[str, Any]], line_format: str) -> Iterator[str]:
    # In pieces, so that other requests are served between them.
    for start in range(0, len(page), FORMATTED_RUNS):
        runs = [RunTelemetry.model_validate(row) for row in page[start : start + FORMATTED_RUNS]]
        yield (
            "".join(f"{run.model_dump_json()}\n" for run in runs)
            if line_format == "jsonl"
            else format_csv(list(run.model_dump(mode="json").values()) for run in runs)
        )


def format_csv(rows: Iterable[Sequence[object]]) -> str:
    """Format rows as CSV (RFC 4180, with LF), with an apostrophe before texts that are formulas."""
    text = StringIO()
    # LF: the command line shows a CR as an escape, as any other control character. Every text is
    # quoted: at a lone CR or a `;`, spreadsheets of some countries begin a cell.
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerows(
        [f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell for cell in row]
        for row in rows
    )
    return text.getvalue()


@router.post("/runs", status_code=202, operation_id="start_run")
@operation("reader")
async def start_run(body: QueryRequest, services: ServicesDep, caller: Caller) -> StartedRun:
    """Answer a question in the background. Takes the body of `/v1/query`; `stream` has no effect.

    503 with code TOO_MANY_RUNS when the tenant has as many runs in progress as are free.
    """
    return StartedRun(run_id=await services.runs.start(caller, body))


@router.get("/runs/{run}/status", operation_id="get_run_status")
@operation("reader")
async def get_run_status(run: UUID, services: ServicesDep, caller: Caller) -> RunStatus:
    """Get state and steps of a run."""
    return await services.runs.get_status(caller, run)


@router.get(
    "/runs/{run}/stream",
    operation_id="stream_run",
    response_class=StreamingResponse,
    responses=STREAM_RESPONSES,
)
@operation("reader")
async def stream_run(
    run: UUID,
    services: ServicesDep,
    caller: Caller,
    last_event_id: Annotated[
        str | None, Header(max_length=20, description="`id` of the last event received.")
    ] = None,
) -> Response:
    """Stream the steps of a run from its start, or after an event, and then its answer."""
    after = last_event_id or "0"
    if after == END_ID:
        # A browser reconnects after the end of a stream, unless it gets this status.
        await services.runs.get_status(caller, run)
        return Response(status_code=204)
    if not (after.isascii() and after.isdecimal()):
        raise InvalidRequest(
            f"Last-Event-ID {after!r} is not an id of this stream.",
            remedy="Send the `id` of the last event received, or omit the header.",
        )
    messages = services.runs.follow(caller, run, int(after))
    return await stream_messages(messages, _format_message)


def _format_message(message: RunMessage) -> bytes:
    if message.event == "working":
        return format_sse_event(comment=message.event)
    data = json.dumps(message.data, ensure_ascii=False)
    return format_event(data, event=message.event, id=message.id)


@router.get("/runs/{run}/artifacts", operation_id="get_run_artifacts")
@operation("reader")
async def get_run_artifacts(run: UUID, services: ServicesDep, caller: Caller) -> RunArtifacts:
    """Get the results of the steps, with every number that entered a sum."""
    run_fields = await services.run_history.runs.get_run(caller, run)
    record, response = run_fields["run_record"] or {}, run_fields["response"] or {}
    trace = response.get("trace") or {}
    has_answer = bool(response)
    return RunArtifacts(
        run_id=run,
        state=run_fields["state"],
        candidates=run_fields["candidates"] if has_answer else None,
        numbers=run_fields["numbers"] if has_answer else None,
        route=trace.get("route"),
        trace=trace or None,
        **{
            name: record.get(name)
            for name in ("question", "language", "keywords", "draft", "prompts")
        },
        **{name: response.get(name) for name in ("contexts", "judge", "answer", "citations")},
    )


@router.post("/runs/{run}/cancel", status_code=202, operation_id="cancel_run")
@operation("reader")
async def cancel_run(run: UUID, services: ServicesDep, caller: Caller) -> RunStatus:
    """Cancel a run, which ends its model calls. A run that has ended stays as it is.

    The state may still be `running` if another process runs it, which then takes a second or two.
    """
    return await services.runs.cancel(caller, run)


@router.get("/runs/{run}", operation_id="get_run")
@operation("reader", problems="404 NOT_FOUND")
async def get_run(run: UUID, services: ServicesDep, caller: Caller) -> Run:
    """Get a run."""
    run_fields = await services.run_history.runs.get_run(caller, run)
    return Run.model_validate(run_fields)


@router.post("/runs/{run}/rerun", operation_id="rerun_run")
@operation("reader", problems="404 NOT_FOUND PASSAGE_GONE RUN_ERASED")
async def rerun_run(run: UUID, services: ServicesDep, caller: Caller) -> Rerun:
    """Rebuild the answer from its recorded candidates, numbers and passages.

    Calls no model and no index. 404 when a passage that the answer was read from no longer exists.
    """
    return Rerun.model_validate(await services.run_history.rerun(caller, run))


@router.get("/runs/{run}/counterfactual", operation_id="get_counterfactual")
@operation("reader", problems="404 NOT_FOUND PASSAGE_GONE RUN_ERASED 422 NO_CITATIONS")
async def get_counterfactual(
    run: UUID, services: ServicesDep, caller: Caller
) -> CounterfactualAnswer:
    """Answer again with each cited document left out, to see what the answer rests on.

    Uses the recorded candidates and scores; calls no model and no index.
    """
    return await services.run_history.answer_without_documents(caller, run)


@router.post("/runs/{run}/bisect", operation_id="bisect_run")
@operation(
    "reader",
    problems="404 NOT_FOUND PASSAGE_GONE RUN_ERASED "
    "422 SAME_ANSWER DIFFERENT_QUESTIONS NO_CITATIONS OUTSIDE_RUNS",
)
async def bisect_run(
    run: UUID, body: BisectRequest, services: ServicesDep, caller: Caller
) -> Bisection:
    """Find the change between two runs of a question that flipped its answer.

    A binary search over the changes between them: revisions in the order of the log, the
    generation, the profile. Between two positions of the log, only over the revisions. Uses the
    recorded candidates of both runs; calls no model.
    """
    return await services.run_history.bisect(caller, run, body.other, (body.start, body.end))


@router.post("/runs/{run}/diff", operation_id="diff_run")
@operation("reader", problems="404 NOT_FOUND RUN_ERASED")
async def diff_run(
    run: UUID, body: RunDiffRequest, services: ServicesDep, caller: Caller
) -> RunDiff:
    """Compare a run with now or with another run.

    Lists moved, removed and new passages, changes of the answer, and the reasons.
    """
    return await services.run_history.diff_run(caller, run, body.other)
