"""Questions that were asked, with what came of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter

from api.dependencies import Caller, PageCursor, PageLimit, ServicesDep
from schemas.errors import NotFound

router = APIRouter(tags=["runs"])


@router.get("/runs", operation_id="list_runs")
async def list_runs(services: ServicesDep, caller: Caller, after: PageCursor = None, limit: PageLimit = 50) -> dict[str, Any]:
    items, next_cursor = await services.listings.list_runs(caller, after=after, limit=limit)
    return {"items": items, "next": next_cursor}


@router.get("/runs/{run}", operation_id="get_run")
async def get_run(run: UUID, services: ServicesDep, caller: Caller) -> dict[str, Any]:
    run_fields = await services.listings.get_run(caller, run)
    if run_fields is None:
        raise NotFound(f"no run {run}", remedy="It may not have reached the log yet; GET /v1/runs lists those that have.")
    return run_fields
