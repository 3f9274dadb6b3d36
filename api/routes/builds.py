"""Generations that are being built beside the one that answers."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from api.access import Use, whole_tenant
from api.audit import AuditedRoute
from api.replays import PerSecond

router = APIRouter(tags=["generations"], route_class=AuditedRoute, dependencies=[Depends(whole_tenant)])
Sets: Any = Field([], description="settings as `section.key=value`, on top of those that the live generation was made with")
Rate: Any = Field(None, description="events a second that it reads at most; null: as fast as it can")


class PlanRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    set: list[str] = Sets


class BuildRequest(PlanRequest):
    purpose: Literal["rebuild", "reindex"] = Field(description="`rebuild`: the same index from the log; `reindex`: with other settings")
    keep: bool = Field(False, description="of a rebuild: what it replaces stands by, and is not dropped")
    events_per_second: PerSecond | None = Rate


class Minutes(BaseModel):
    low: float
    high: float


class PlanBody(BaseModel):
    """What another configuration would take. Engine calls are inputs that no memo knows."""

    first_changed_stage: str
    stages: list[str]
    topic: str = Field(description="that the first changed stage reads")
    events: int = Field(description="of current revisions, in that topic")
    engine_calls: dict[str, int]
    memo_hits: int
    tokens: int
    bytes: int
    minutes: Minutes
    covered_by_retention: bool = Field(description="the log still holds all that the live generation was made from")


class Pace(BaseModel):
    """What is left out stays as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paused: bool = False
    events_per_second: PerSecond | None = Rate


@router.post("/generations", status_code=202, operation_id="build_generation")
async def build(wanted: BuildRequest, use: Use) -> dict[str, Any]:
    """Workers build it. A rebuild then takes the live one's place by itself; a reindex waits to be promoted. `GET …/build` tells how far it is."""
    if wanted.purpose == "rebuild":
        return await use.builds.show_soon(await use.builds.rebuild(keep=wanted.keep, events_per_second=wanted.events_per_second))
    name, _ = await use.builds.start(wanted.set, events_per_second=wanted.events_per_second)
    return await use.builds.show_soon(name)


@router.post("/generations/plan", operation_id="plan_generation")
async def plan(wanted: PlanRequest, use: Use) -> PlanBody:
    """Changes nothing, and asks no engine."""
    return PlanBody.model_validate((await use.builds.plan(wanted.set)).body())


@router.get("/generations/{name}/build", operation_id="get_build")
async def show(name: str, use: Use) -> dict[str, Any]:
    return await use.builds.show(name)


@router.patch("/generations/{name}/build", operation_id="pace_build")
async def pace(name: str, wanted: Pace, use: Use) -> dict[str, Any]:
    """Pause, go on, or go slower."""
    return await use.builds.pace(name, wanted.model_dump(exclude_unset=True))
