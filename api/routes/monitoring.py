"""Topics, stages, checks and the state of the system."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Literal

from fastapi import APIRouter
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import Caller, ServicesDep, WholeTenant
from schemas.responses import JsonObject, Page, ResponseModel

router = APIRouter(route_class=OperationRoute, tags=["monitoring"])


class TopicSummary(ResponseModel):
    topic: str = Field(description="Name without prefix.")
    partitions: int
    records: int = Field(description="Records that retention has not deleted, of all tenants.")


class PartitionBounds(ResponseModel):
    partition: int
    first: int = Field(description="Lowest readable offset.")
    next: int = Field(description="Offset that the next record gets.")


class TopicDetails(ResponseModel):
    topic: str
    event_types: list[str]
    partitions: list[PartitionBounds]


class StageConsumer(ResponseModel):
    """Lag and recent work of a consumer group."""

    stage: str
    generation: str | None = Field(description="Null if the group serves all generations.")
    is_live: bool = Field(description="Whether it serves the live generation.")
    topic: str
    group: str
    lag: int | None = Field(description="Events that it has not acknowledged. Null: unknown.")
    oldest_seconds: float | None = Field(description="Age of the oldest of them.")
    acknowledged: int | None = Field(description="Sum of its offsets over the partitions.")
    end: int | None = Field(description="Sum of the topic's ends over the partitions.")
    paused: bool = Field(description="Whether it waits for something, such as a model server.")
    reason: str | None = Field(description="Why events wait; null for others than operators.")
    remedy: str | None = Field(description="What to do about it; null for others than operators.")
    started: int | None
    """Pieces of work that began in the window; null for stages without documents."""
    finished: int | None = Field(description="Pieces of work that ended in the window.")
    in_flight: int | None = Field(description="Pieces of work in progress.")
    retries: int | None = Field(description="Further attempts at the work begun in the window.")
    p50_ms: float | None = Field(description="Median duration of the work ended in the window.")
    p95_ms: float | None = Field(description="95th percentile of the same durations.")


class StageOverview(ResponseModel):
    """Consumer groups of all generations. Numbers concern all tenants."""

    window_seconds: float
    items: list[StageConsumer]
    circuits: dict[str, Literal["closed", "half-opened", "opened"]]
    """State of the circuit to each model server that the API calls."""
    horizon: JsonObject | None
    """The transaction that holds readers of the log back. Operators only."""
    locks: list[JsonObject] = Field(description="Transactions that block writes. Operators only.")


class CheckResult(ResponseModel):
    check: str
    state: Literal["pass", "warn", "fail"]
    detail: str
    remedy: str = Field(description="What to do; empty if nothing.")


class DiskState(ResponseModel):
    """The disk of the data folder that has the least space."""

    total_bytes: int
    free_bytes: int
    reserve_bytes: int = Field(description="With less free space, uploads are refused.")


class PostgresVersions(ResponseModel):
    version: str
    pgvector: str | None


class OpenStreams(ResponseModel):
    """Streams of this process."""

    events: int
    answers: int


class System(ResponseModel):
    """The process that answers, and what it uses."""

    version: str
    python: str
    platform: str
    started_at: datetime
    uptime_seconds: float
    backends: dict[str, str] = Field(description="Kind of database, log, blobs and graph.")
    postgres: PostgresVersions
    disk: DiskState
    open_streams: OpenStreams
    tenants: list[str] | None = Field(description="Null for callers other than operators.")


@router.get("/topics", operation_id="list_topics")
@operation("admin")
async def list_topics(services: ServicesDep, _: WholeTenant) -> Page[TopicSummary]:
    """List the topics of the log with partitions and number of records."""
    return Page[TopicSummary].build(await services.monitoring.list_topics())


@router.get("/topics/{topic}", operation_id="get_topic")
@operation("admin", problems="404 NOT_FOUND")
async def get_topic(topic: str, services: ServicesDep, _: WholeTenant) -> TopicDetails:
    """Get the event types and partitions of a topic."""
    return TopicDetails.model_validate(await services.monitoring.describe_topic(topic))


@router.get("/stages", operation_id="list_stages")
@operation("admin")
async def list_stages(services: ServicesDep, caller: WholeTenant) -> StageOverview:
    """List the consumer groups of the stages: lag, recent work, and why events wait.

    Shared between callers for a second or longer, as `anabranch topics lag` measures it.
    """
    return StageOverview.model_validate(await services.monitoring.describe_stages(caller))


@router.get("/doctor", operation_id="run_doctor")
@operation("operator")
async def run_doctor(services: ServicesDep, _: Caller) -> Page[CheckResult]:
    """Check the server's machine and its connections, as `anabranch doctor` does."""
    return Page[CheckResult].build([asdict(finding) for finding in await services.diagnose()])


@router.get("/system", operation_id="get_system")
@operation("admin")
async def get_system(services: ServicesDep, caller: WholeTenant) -> System:
    """Get versions, uptime, disk, backends, open streams and, for an operator, tenants."""
    return System.model_validate(await services.monitoring.describe_system(caller))
