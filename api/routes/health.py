"""Liveness, readiness, health and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from api.dependencies import Caller, ServicesDep

router = APIRouter(tags=["health"])


@router.get("/livez", operation_id="livez")
async def check_liveness() -> dict[str, str]:
    """Report that the process responds."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    operation_id="readyz",
    responses={503: {"description": "A dependency is unavailable"}},
)
async def check_readiness(services: ServicesDep) -> JSONResponse:
    """Report each dependency; 503 while any is unavailable."""
    dependencies = await services.check_readiness()
    is_ready = all(line.ok for line in dependencies)
    body = {
        "status": "ok" if is_ready else "unavailable",
        "dependencies": {
            line.name: {"ok": line.ok, "detail": line.detail, "remedy": line.remedy}
            for line in dependencies
        },
    }
    return JSONResponse(
        body, 200 if is_ready else 503, headers={} if is_ready else {"Retry-After": "5"}
    )


@router.get("/health", operation_id="health")
async def get_health(services: ServicesDep, caller: Caller) -> dict[str, Any]:
    """Summarize version, log, live generation, documents by state, and dead letters by stage."""
    return await services.get_health(caller)


@router.get("/metrics", operation_id="metrics", response_class=Response)
async def get_metrics(services: ServicesDep) -> Response:
    """Get metrics in Prometheus text format."""
    body, media_type = services.render_metrics()
    return Response(body, media_type=media_type)
