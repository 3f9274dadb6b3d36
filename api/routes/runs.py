"""Recorded queries and their results."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter

from api.dependencies import Caller, PageCursor, PageLimit, ServicesDep
from schemas.errors import unknown_run_error

router = APIRouter(tags=["runs"])


@router.get("/runs", operation_id="list_runs")
async def list_runs(
    services: ServicesDep, caller: Caller, after: PageCursor = None, limit: PageLimit = 50
) -> dict[str, Any]:
    """List runs."""
    items, next_cursor = await services.listings.list_runs(caller, after=after, limit=limit)
    return {"items": items, "next": next_cursor}


@router.get("/runs/{run}", operation_id="get_run")
async def get_run(run: UUID, services: ServicesDep, caller: Caller) -> dict[str, Any]:
    """Get a run."""
    run_fields = await services.listings.get_run(caller, run)
    if run_fields is None:
        raise unknown_run_error(run)
    return run_fields
