"""Queries as runs: start, follow and cancel them; list, rerun and compare recorded ones."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import format_sse_event
from pydantic import BaseModel, ConfigDict, Field

from api.dependencies import (
    Caller,
    FromTime,
    IdPrefix,
    PageCursor,
    PageLimit,
    ServicesDep,
    UntilTime,
)
from api.operations import OperationRoute, operation
from api.responses import JsonObject, Page, ResponseModel, Time
from api.sse import MEDIA_TYPE, stream_messages
from schemas.errors import InvalidRequest
from schemas.questions import QueryRequest, QueryResponse, SearchResponse
from schemas.run_records import RunDiff, RunMessage, RunOutcome, RunStatus, StoppedState

router = APIRouter(route_class=OperationRoute, tags=["runs"])


RunState = Annotated[
    Literal["running", "completed", StoppedState] | None,
    Field(
        description=(
            "Null for a query that was not started as a run and has no recorded answer. "
            "`interrupted`: the process that ran it ended."
        )
    ),
]
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


class RunSummary(ResponseModel):
    run_id: UUID
    kind: Literal["query", "search"] | None
    received_at: Time | None
    answered_at: Time | None = Field(description="Null until the answer is recorded.")
    state: RunState
    generation: str | None
    query: str | None
    profile: str | None
    refused: bool | None
    answer: str | None


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
    run_record: JsonObject | None = Field(
        description="What a rerun needs to make the answer again."
    )


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
    candidates: list[JsonObject] | None = Field(
        description="Passages of all channels with all their scores."
    )
    numbers: JsonObject | None = Field(description="Every other number that entered a sum.")
    contexts: list[JsonObject] | None = Field(description="Passages that were read.")
    draft: JsonObject | None = Field(description="How the answer was written.")
    judge: JsonObject | None = Field(description="Checks of the answer and the decision.")
    prompts: JsonObject | None = Field(description="SHA-256 of each prompt, by task.")
    trace: JsonObject | None
    answer: str | None
    citations: list[JsonObject] | None


class RunDiffRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    other: UUID | None = Field(
        None, description="Run to compare with. By default the query runs again now, as a new run."
    )


class Rerun(ResponseModel):
    """The answer made again from what was recorded, compared with the recorded one."""

    run_id: UUID
    kind: Literal["query", "search"]
    same: bool
    differences: list[str]
    missing: list[str] = Field(description="Passages whose text no longer exists.")
    response: QueryResponse | SearchResponse


@router.get("/runs", operation_id="list_runs")
@operation("reader")
async def list_runs(
    services: ServicesDep,
    caller: Caller,
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
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> Page[RunSummary]:
    """List runs, the latest first."""
    items, next_cursor = await services.listings.list_runs(
        caller,
        after=after,
        limit=limit,
        text=text,
        outcome=outcome,
        profile=profile,
        since=since,
        until=until,
        id_prefix=id_prefix,
    )
    return Page[RunSummary].model_validate({"items": items, "next": next_cursor})


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
    return format_sse_event(event=message.event, data_str=data, id=message.id)


@router.get("/runs/{run}/artifacts", operation_id="get_run_artifacts")
@operation("reader")
async def get_run_artifacts(run: UUID, services: ServicesDep, caller: Caller) -> RunArtifacts:
    """Get the results of the steps, with every number that entered a sum."""
    run_fields = await services.run_history.get_run(caller, run)
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
    run_fields = await services.run_history.get_run(caller, run)
    return Run.model_validate(run_fields)


@router.post("/runs/{run}/rerun", operation_id="rerun_run")
@operation("reader", problems="404 NOT_FOUND PASSAGE_GONE RUN_ERASED")
async def rerun_run(run: UUID, services: ServicesDep, caller: Caller) -> Rerun:
    """Rebuild the answer from its recorded candidates, numbers and passages.

    Calls no model and no index. 404 when a passage that the answer was read from no longer exists.
    """
    return Rerun.model_validate(await services.run_history.rerun(caller, run))


@router.post("/runs/{run}/diff", operation_id="diff_run")
@operation("reader", problems="404 NOT_FOUND RUN_ERASED")
async def diff_run(
    run: UUID, body: RunDiffRequest, services: ServicesDep, caller: Caller
) -> RunDiff:
    """Compare a run with now or with another run.

    Lists moved, removed and new passages, changes of the answer, and the reasons.
    """
    return await services.run_history.diff_run(caller, run, body.other)
