"""Generations of the index: build, list, compare, promote, roll back and drop."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import ServicesDep, WholeTenant, require_whole_tenant
from evaluation.comparison import ComparisonBody
from evaluation.promotion_gate import PromotionRequest
from schemas.generations import IndexConfig
from schemas.models import Request
from schemas.replay_requests import EventsPerSecond
from schemas.responses import DurationRange, ErrorDetail, JsonObject, Page, ResponseModel, Time

router = APIRouter(
    route_class=OperationRoute, tags=["generations"], dependencies=[Depends(require_whole_tenant)]
)


SettingOverrides: Any = Field(
    [],
    max_length=100,
    description="Settings as `section.key=value`, applied on top of those of the live generation.",
)
EventsPerSecondField: Any = Field(
    None, description="Maximum rate in events per second; null for no limit."
)


class BuildPlanRequest(Request):
    set: list[Annotated[str, Field(max_length=1_000)]] = SettingOverrides


class BuildRequest(BuildPlanRequest):
    purpose: Literal["rebuild", "reindex"]
    """`rebuild`: the same index, from the log. `reindex`: an index with other settings."""
    keep_previous: bool = False
    """For a rebuild: keep the previous generation on standby instead of dropping it."""
    events_per_second: EventsPerSecond | None = EventsPerSecondField


class BuildPlanResponse(ResponseModel):
    """Estimated cost of a build with other settings.

    `engine_calls` are inputs that the engine result cache lacks.
    """

    first_changed_stage: str
    stages: list[str]
    settings: dict[str, JsonObject]
    """Changed settings with their values `from` and `to`."""
    topic: str = Field(description="Topic that the first changed stage reads.")
    events: int = Field(description="Events of current revisions in that topic.")
    engine_calls: dict[str, int]
    memo_hits: int
    tokens: int
    bytes: int
    minutes: DurationRange
    covered_by_retention: bool
    """True when the log still holds every event that the live generation was built from."""


class BuildPaceRequest(Request):
    """Omitted fields stay unchanged."""

    paused: bool = False
    events_per_second: EventsPerSecond | None = EventsPerSecondField


class GenerationSummary(ResponseModel):
    """A generation with its contents. Below role operator, `bytes` and `build` are null."""

    name: str
    state: str = Field(description="building, shadow, live, standby or dropped.")
    base: str | None = Field(description="The generation that it was built beside.")
    purpose: str = Field(description="first, rebuild or reindex.")
    created_at: Time
    built_at: Time | None
    config: IndexConfig
    how: dict[str, str] = Field(description="Pipeline fingerprint by stage.")
    topics: dict[str, str] = Field(description="Topics that it reads, by their plain names.")
    live: bool
    previous: bool | None = Field(description="True for the one that a rollback restores.")
    documents: int
    chunks: int
    bytes: int | None
    build: JsonObject | None = Field(description="Its build, while it is being built.")


class GenerationBuild(ResponseModel):
    """Progress of a build. Before the workers know of it, only name and state."""

    generation: str
    state: str
    base: str | None = None
    purpose: str | None = Field(None, description="first, rebuild or reindex.")
    phase: str | None = None
    """loading, indexing, catching up, checking or built."""
    paused: bool = False
    events_per_second: float | None = None
    engine_calls: dict[str, int] = Field({}, description="Inputs that engines processed.")
    events: int | None = Field(None, description="Set once it is built.")
    rows: int | None = Field(None, description="Set once it is built.")
    error: ErrorDetail | None = None
    started_at: Time | None = None
    built_at: Time | None = None


class FailedComparison(ResponseModel):
    query: str
    code: str
    detail: str


class RankMoves(ResponseModel):
    """Passages of A's first ten that stayed, rose, fell or left B's first ten."""

    same: int
    up: int
    down: int
    left: int
    mean_distance: float | None


class DifferenceInterval(ResponseModel):
    """Mean difference B − A with its confidence interval."""

    difference: float
    low: float
    high: float
    queries: int


class ComparisonCost(ResponseModel):
    model_calls: int
    tokens: int
    index_bytes: int


class ComparedQuery(ResponseModel):
    """A query whose results differ most."""

    query: str
    source: str
    run_id: str | None
    overlap_at_10: float = Field(alias="overlap@10")
    ndcg_at_10: dict[str, float] | None = Field(alias="ndcg@10", description="By side.")
    mrr_at_10: dict[str, float] | None = Field(alias="mrr@10", description="By side.")
    refused: dict[str, bool] = Field(description="By side.")


class ComparisonReport(ResponseModel):
    """The same queries against two generations. The sides are `A` and `B`; differences are
    B − A.
    """

    schema_version: int
    generations: dict[str, str] = Field(description="Names by side.")
    profiles: dict[str, str | None] = {}
    """Profiles by side; null for the one of each query."""
    queries: int
    judged_queries: int
    sources: dict[str, int] = Field(description="Queries by source: golden, real, feedback.")
    failed: dict[str, FailedComparison] = Field(description="By query id.")
    overlap_at_10: float | None = Field(alias="overlap@10")
    rank_moves: RankMoves
    metrics: dict[str, dict[str, float | None]] = Field(description="By side, then measure.")
    intervals: dict[str, DifferenceInterval] = Field(description="By measure.")
    judgements: int
    mapped_share: dict[str, float | None] = Field(description="By side.")
    judged_share: dict[str, float | None] = Field(description="By side.")
    refusals: dict[str, float | None] = Field(description="By side.")
    latency_ms: dict[str, dict[str, float | None]] = Field(description="By side, then percentile.")
    cost: dict[str, ComparisonCost] = Field(description="By side.")
    worst: list[ComparedQuery]


class PromotionResponse(ResponseModel):
    """`promoted` is false when the promotion gate failed, with the reasons; nothing has changed
    then.
    """

    generation: str
    previous: str | None
    """The generation on standby, which a rollback restores."""
    promoted: bool
    reasons: list[str]
    comparison: ComparisonReport | None
    """The comparison that the gate evaluated."""


class LockHolder(ResponseModel):
    """A transaction that keeps a table of the generation open."""

    pid: int
    application: str | None
    state: str | None
    seconds: float | None = Field(description="Since the transaction began.")


class DropResponse(ResponseModel):
    generation: str
    removed: bool
    """True when all its tables are dropped; false while a transaction still holds one."""
    blocked_by: LockHolder | None
    topics: list[str] = Field(description="Deleted topics, which no other generation uses.")


@router.post(
    "/generations",
    status_code=202,
    operation_id="build_generation",
    response_model_exclude_unset=True,
)
@operation(
    "operator",
    problems="409 NOT_RETAINED 422 NOTHING_CHANGES SETTING_NOT_APPROVED",
    audit=("generation.build_started", "{generation}"),
)
async def build_generation(body: BuildRequest, services: ServicesDep) -> GenerationBuild:
    """Start to build a generation; workers do the work.

    A rebuild replaces the live generation when it is complete. A reindex waits until it is
    promoted. `GET /v1/generations/{name}/build` reports progress.
    """
    if body.purpose == "rebuild":
        name = await services.builds.start_rebuild(
            keep_previous=body.keep_previous, events_per_second=body.events_per_second
        )
    else:
        name, _ = await services.builds.start_reindex(
            body.set, events_per_second=body.events_per_second
        )
    return GenerationBuild.model_validate(await services.builds.get_build_or_pending(name))


@router.post("/generations/plan", operation_id="plan_generation")
@operation("operator", problems="422 NOTHING_CHANGES SETTING_NOT_APPROVED")
async def plan_generation(body: BuildPlanRequest, services: ServicesDep) -> BuildPlanResponse:
    """Estimate the cost of a build, without changes and engine calls."""
    return BuildPlanResponse.model_validate((await services.builds.plan_build(body.set)).to_dict())


@router.get(
    "/generations/{name}/build", operation_id="get_build", response_model_exclude_unset=True
)
@operation("operator", problems="404 NO_SUCH_GENERATION")
async def get_build(name: str, services: ServicesDep) -> GenerationBuild:
    """Get the progress of a build."""
    return GenerationBuild.model_validate(await services.builds.get_build(name))


@router.patch(
    "/generations/{name}/build", operation_id="pace_build", response_model_exclude_unset=True
)
@operation(
    "operator",
    problems="404 NO_SUCH_GENERATION 422 GENERATION_IS_BUILT",
    audit=("generation.build_paced", "{name}"),
)
async def change_build_pace(
    name: str, body: BuildPaceRequest, services: ServicesDep
) -> GenerationBuild:
    """Pause, resume or throttle a build."""
    return GenerationBuild.model_validate(
        await services.builds.change_pace(name, body.model_dump(exclude_unset=True))
    )


@router.get("/generations", operation_id="list_generations", response_model_exclude_unset=True)
@operation("admin")
async def list_generations(services: ServicesDep, caller: WholeTenant) -> Page[GenerationSummary]:
    """List generations that are not dropped, with their contents and sizes.

    Below role operator, documents and chunks are the tenant's own, and `bytes` and `build` are
    null.
    """
    return Page[GenerationSummary].build(await services.generations.list_generations(caller))


@router.get("/generations/{name}", operation_id="get_generation", response_model_exclude_unset=True)
@operation("admin", problems="404 NOT_FOUND NO_SUCH_GENERATION")
async def get_generation(
    name: str, services: ServicesDep, caller: WholeTenant
) -> GenerationSummary:
    """Get a generation."""
    return GenerationSummary.model_validate(await services.generations.get_generation(caller, name))


@router.post("/generations/compare", operation_id="compare_generations")
@operation("operator", problems="404 NO_SUCH_GENERATION 422 UNKNOWN_PROFILE")
async def compare_generations(
    body: ComparisonBody, services: ServicesDep, caller: WholeTenant
) -> ComparisonReport:
    """Run the golden queries, and recorded queries of a period, against both generations.

    Responds when all are done.
    """
    return ComparisonReport.model_validate(
        await services.generations.compare(caller.tenant, body.a, body.b, body)
    )


@router.post("/generations/rollback", operation_id="roll_back")
@operation(
    "operator",
    problems="422 NO_PREVIOUS_GENERATION",
    audit=("generation.rolled_back", "{previous}"),
)
async def roll_back(services: ServicesDep) -> PromotionResponse:
    """Make the previous generation live again."""
    return PromotionResponse.model_validate(await services.generations.roll_back(None))


@router.post("/generations/{name}/rollback", operation_id="roll_back_from")
@operation(
    "operator",
    problems="409 GENERATION_NOT_LIVE 422 NO_PREVIOUS_GENERATION",
    audit=("generation.rolled_back", "{name}"),
)
async def roll_back_generation(name: str, services: ServicesDep) -> PromotionResponse:
    """Make the previous generation live again, provided that the named one is live."""
    return PromotionResponse.model_validate(await services.generations.roll_back(name))


@router.post("/generations/{name}/promote", operation_id="promote_generation")
@operation(
    "operator",
    problems="404 NO_SUCH_GENERATION 409 GENERATION_BEHIND NOT_CALIBRATED",
    audit=("generation.promoted", "{name}"),
)
async def promote_generation(
    name: str, services: ServicesDep, caller: WholeTenant, body: PromotionRequest | None = None
) -> PromotionResponse:
    """Make the generation live, in one transaction.

    Every document that is visible now must be settled in it, and the promotion gate, if given, must
    pass.
    """
    return PromotionResponse.model_validate(
        await services.generations.promote(caller.tenant, name, body or PromotionRequest())
    )


@router.delete("/generations/{name}", operation_id="drop_generation")
@operation(
    "operator",
    problems="404 NO_SUCH_GENERATION 409 GENERATION_IS_LIVE",
    audit=("generation.dropped", "{name}"),
)
async def drop_generation(name: str, services: ServicesDep) -> DropResponse:
    """Drop the generation and its tables permanently."""
    return DropResponse.model_validate(await services.generations.drop(name))
