"""Recorded queries and their results: list, rerun and compare them."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from api.dependencies import Caller, PageCursor, PageLimit, ServicesDep
from api.responses import JsonObject, Page, ResponseModel, Time
from schemas.errors import unknown_run_error
from schemas.questions import QueryResponse, SearchResponse
from schemas.run_records import RunDiff

router = APIRouter(tags=["runs"])


class RunSummary(ResponseModel):
    run_id: UUID
    kind: Literal["query", "search"] | None
    received_at: Time | None
    answered_at: Time | None = Field(description="Null until the answer is recorded.")
    generation: str | None
    query: str | None
    refused: bool | None
    answer: str | None


class Run(ResponseModel):
    """A recorded query. Its parts are as the version that answered it recorded them."""

    run_id: UUID
    kind: Literal["query", "search"] | None
    request: JsonObject | None = Field(description="Body of the request, with its defaults.")
    received_at: Time | None
    answered_at: Time | None = Field(description="Null until the answer is recorded.")
    generation: str | None
    response: JsonObject | None = Field(description="Body of the response.")
    candidates: list[JsonObject] | None = Field(description="Passages with all their scores.")
    numbers: JsonObject | None = Field(description="Intermediate results of the steps.")
    run_record: JsonObject | None = Field(
        description="What a rerun needs to make the answer again."
    )


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
async def list_runs(
    services: ServicesDep, caller: Caller, after: PageCursor = None, limit: PageLimit = 50
) -> Page[RunSummary]:
    """List runs."""
    items, next_cursor = await services.listings.list_runs(caller, after=after, limit=limit)
    return Page[RunSummary].model_validate({"items": items, "next": next_cursor})


@router.get("/runs/{run}", operation_id="get_run")
async def get_run(run: UUID, services: ServicesDep, caller: Caller) -> Run:
    """Get a run."""
    run_fields = await services.listings.get_run(caller, run)
    if run_fields is None:
        raise unknown_run_error(run)
    return Run.model_validate(run_fields)


@router.post("/runs/{run}/rerun", operation_id="rerun_run")
async def rerun_run(run: UUID, services: ServicesDep, caller: Caller) -> Rerun:
    """Rebuild the answer from its recorded candidates, numbers and passages.

    Calls no model and no index. 404 when a passage that the answer was read from no longer exists.
    """
    return Rerun.model_validate(await services.run_history.rerun(caller, run))


@router.post("/runs/{run}/diff", operation_id="diff_run")
async def diff_run(
    run: UUID, body: RunDiffRequest, services: ServicesDep, caller: Caller
) -> RunDiff:
    """Compare a run with now or with another run.

    Lists moved, removed and new passages, changes of the answer, and the reasons.
    """
    return await services.run_history.diff_run(caller, run, body.other)
