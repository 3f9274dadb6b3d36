"""Builds of generations."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from api.audit import AuditedRoute
from api.dependencies import ServicesDep, require_whole_tenant
from schemas.replay_requests import EventsPerSecond

router = APIRouter(
    tags=["generations"], route_class=AuditedRoute, dependencies=[Depends(require_whole_tenant)]
)
SettingOverrides: Any = Field(
    [],
    description="Settings as `section.key=value`, applied on top of those of the live generation.",
)
EventsPerSecondField: Any = Field(
    None, description="Maximum rate in events per second; null for no limit."
)


class BuildPlanRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    set: list[str] = SettingOverrides


class BuildRequest(BuildPlanRequest):
    purpose: Literal["rebuild", "reindex"] = Field(
        description="`rebuild`: the same index, from the log. `reindex`: an index with other settings."
    )
    keep: bool = Field(
        False,
        description="For a rebuild: keep the previous generation on standby instead of dropping it.",
    )
    events_per_second: EventsPerSecond | None = EventsPerSecondField


class DurationEstimate(BaseModel):
    low: float
    high: float


class BuildPlanResponse(BaseModel):
    """Estimated cost of a build with other settings.

    `engine_calls` are inputs that the engine result cache lacks.
    """

    first_changed_stage: str
    stages: list[str]
    topic: str = Field(description="Topic that the first changed stage reads.")
    events: int = Field(description="Events of current revisions in that topic.")
    engine_calls: dict[str, int]
    memo_hits: int
    tokens: int
    bytes: int
    minutes: DurationEstimate
    covered_by_retention: bool = Field(
        description="True when the log still holds every event that the live generation was built from."
    )


class BuildPaceRequest(BaseModel):
    """Omitted fields stay unchanged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paused: bool = False
    events_per_second: EventsPerSecond | None = EventsPerSecondField


@router.post("/generations", status_code=202, operation_id="build_generation")
async def build_generation(body: BuildRequest, services: ServicesDep) -> dict[str, Any]:
    """Start to build a generation; workers do the work.

    A rebuild replaces the live generation when it is complete. A reindex waits until it is promoted. `GET
    /v1/generations/{name}/build` reports progress.
    """
    if body.purpose == "rebuild":
        return await services.builds.get_build_or_pending(
            await services.builds.start_rebuild(
                keep_previous=body.keep, events_per_second=body.events_per_second
            )
        )
    name, _ = await services.builds.start_reindex(
        body.set, events_per_second=body.events_per_second
    )
    return await services.builds.get_build_or_pending(name)


@router.post("/generations/plan", operation_id="plan_generation")
async def plan_generation(body: BuildPlanRequest, services: ServicesDep) -> BuildPlanResponse:
    """Estimate the cost of a build, without changes and engine calls."""
    return BuildPlanResponse.model_validate((await services.builds.plan_build(body.set)).to_dict())


@router.get("/generations/{name}/build", operation_id="get_build")
async def get_build(name: str, services: ServicesDep) -> dict[str, Any]:
    """Get the progress of a build."""
    return await services.builds.get_build(name)


@router.patch("/generations/{name}/build", operation_id="pace_build")
async def change_build_pace(
    name: str, body: BuildPaceRequest, services: ServicesDep
) -> dict[str, Any]:
    """Pause, resume or throttle a build."""
    return await services.builds.change_pace(name, body.model_dump(exclude_unset=True))
