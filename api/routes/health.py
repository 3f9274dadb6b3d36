"""Is it alive, is it ready, how does it do?"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from api.access import Caller, Use

router = APIRouter(tags=["health"])


@router.get("/livez", operation_id="livez")
async def livez() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", operation_id="readyz", responses={503: {"description": "Some dependency is not there"}})
async def readyz(use: Use) -> JSONResponse:
    """Each dependency by itself; 503 while any is missing."""
    lines = await use.ready()
    ok = all(line.ok for line in lines)
    body = {
        "status": "ok" if ok else "unavailable",
        "dependencies": {line.name: {"ok": line.ok, "detail": line.detail, "remedy": line.remedy} for line in lines},
    }
    return JSONResponse(body, 200 if ok else 503, headers={} if ok else {"Retry-After": "5"})


@router.get("/health", operation_id="health")
async def health(use: Use, caller: Caller) -> dict[str, Any]:
    """A summary: version, log, generation, documents by state, and dead letters by stage with the call that lists them."""
    return await use.health(caller)


@router.get("/metrics", operation_id="metrics", response_class=Response)
async def metrics(use: Use) -> Response:
    """Prometheus text."""
    body, media_type = use.metrics()
    return Response(body, media_type=media_type)
