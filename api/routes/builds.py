"""Generations that are being built beside the one that answers."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from api.audit import AuditedRoute
from api.dependencies import ServicesDep, require_whole_tenant
from schemas.replay_requests import EventsPerSecond

router = APIRouter(tags=["generations"], route_class=AuditedRoute, dependencies=[Depends(require_whole_tenant)])
SettingOverrides: Any = Field([], description="settings as `section.key=value`, on top of those that the live generation was made with")
EventsPerSecondField: Any = Field(None, description="events a second that it reads at most; null: as fast as it can")


class BuildPlanRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    set: list[str] = SettingOverrides


class BuildRequest(BuildPlanRequest):
    purpose: Literal["rebuild", "reindex"] = Field(description="`rebuild`: the same index from the log; `reindex`: with other settings")
    keep: bool = Field(False, description="of a rebuild: what it replaces stands by, and is not dropped")
    events_per_second: EventsPerSecond | None = EventsPerSecondField


class DurationEstimate(BaseModel):
    low: float
    high: float


class BuildPlanResponse(BaseModel):
    """What another configuration would take. Engine calls are inputs that no memo knows."""

    first_changed_stage: str
    stages: list[str]
    topic: str = Field(description="that the first changed stage reads")
    events: int = Field(description="of current revisions, in that topic")
    engine_calls: dict[str, int]
    memo_hits: int
    tokens: int
    bytes: int
    minutes: DurationEstimate
    covered_by_retention: bool = Field(description="the log still holds all that the live generation was made from")


class BuildPaceRequest(BaseModel):
    """What is left out stays as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paused: bool = False
    events_per_second: EventsPerSecond | None = EventsPerSecondField


@router.post("/generations", status_code=202, operation_id="build_generation")
async def build_generation(body: BuildRequest, services: ServicesDep) -> dict[str, Any]:
    """Workers build it. A rebuild then takes the live one's place by itself; a reindex waits to be promoted. `GET …/build` tells how far it is."""
    if body.purpose == "rebuild":
        return await services.builds.get_build_or_pending(
            await services.builds.start_rebuild(keep_previous=body.keep, events_per_second=body.events_per_second)
        )
    name, _ = await services.builds.start_reindex(body.set, events_per_second=body.events_per_second)
    return await services.builds.get_build_or_pending(name)


@router.post("/generations/plan", operation_id="plan_generation")
async def plan_generation(body: BuildPlanRequest, services: ServicesDep) -> BuildPlanResponse:
    """Changes nothing, and asks no engine."""
    return BuildPlanResponse.model_validate((await services.builds.plan_build(body.set)).to_dict())


@router.get("/generations/{name}/build", operation_id="get_build")
async def get_build(name: str, services: ServicesDep) -> dict[str, Any]:
    return await services.builds.get_build(name)


@router.patch("/generations/{name}/build", operation_id="pace_build")
async def change_build_pace(name: str, body: BuildPaceRequest, services: ServicesDep) -> dict[str, Any]:
    """Pause, go on, or go slower."""
    return await services.builds.change_pace(name, body.model_dump(exclude_unset=True))
