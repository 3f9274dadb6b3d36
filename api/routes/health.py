"""Liveness, readiness, health and metrics."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from api.operations import PUBLIC, OperationRoute, operation
from api.problems import RETRY_AFTER_S
from api.services import Caller, ServicesDep, WholeTenant
from schemas.responses import ResponseModel

router = APIRouter(route_class=OperationRoute, tags=["health"])
METRICS_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}


class Liveness(ResponseModel):
    status: Literal["ok"] = "ok"


class Dependency(ResponseModel):
    ok: bool
    detail: str
    remedy: str


class Readiness(ResponseModel):
    status: Literal["ok", "unavailable"]
    dependencies: dict[str, Dependency] = Field(description="By name, such as `database`.")


class OpenDeadLetters(ResponseModel):
    total: int
    stages: dict[str, int] = Field(description="By stage.")
    list: str = Field(description="Path of the list.")


class Health(ResponseModel):
    """Documents and dead letters are the tenant's, and empty for callers limited to readers."""

    status: Literal["ok", "degraded"]
    version: str
    log: str = Field(description="`postgres` or `kafka`.")
    generation: str | None = Field(description="The live generation.")
    documents: dict[str, int] = Field(description="By state.")
    dead_letters: OpenDeadLetters
    dependencies: dict[str, bool] = Field(description="By name; GET /readyz has the details.")


@router.get("/livez", operation_id="livez")
@operation(PUBLIC)
async def check_liveness() -> Liveness:
    """Report that the process responds."""
    return Liveness()


@router.get(
    "/readyz",
    operation_id="readyz",
    responses={503: {"description": "A dependency is unavailable", "model": Readiness}},
)
@operation(PUBLIC)
async def check_readiness(services: ServicesDep, response: Response) -> Readiness:
    """Report each dependency; 503 while any is unavailable."""
    dependencies = await services.check_readiness()
    # 503 stops traffic to this replica; /livez still succeeds, so it is not restarted.
    is_ready = all(line.ok for line in dependencies)
    if not is_ready:
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return Readiness(
        status="ok" if is_ready else "unavailable",
        dependencies={
            line.name: Dependency(ok=line.ok, detail=line.detail, remedy=line.remedy)
            for line in dependencies
        },
    )


@router.get("/health", operation_id="health")
@operation("reader")
async def get_health(services: ServicesDep, caller: Caller) -> Health:
    """Summarize version, log, live generation, documents by state, and dead letters by stage."""
    return Health.model_validate(await services.get_health(caller))


@router.get("/metrics", operation_id="metrics", response_class=Response, responses=METRICS_RESPONSE)
@operation("admin")
async def get_metrics(services: ServicesDep, _: WholeTenant) -> Response:
    """Get metrics in Prometheus text format, without names of tenants or documents."""
    body, media_type = services.render_metrics()
    return Response(body, media_type=media_type)
