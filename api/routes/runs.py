"""Questions that were asked, with what came of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter

from api.access import After, Caller, Limit, Use
from schemas.errors import NotFound

router = APIRouter(tags=["runs"])


@router.get("/runs", operation_id="list_runs")
async def runs(use: Use, caller: Caller, after: After = None, limit: Limit = 50) -> dict[str, Any]:
    items, following = await use.records.runs(caller, after=after, limit=limit)
    return {"items": items, "next": following}


@router.get("/runs/{run}", operation_id="get_run")
async def run(run: UUID, use: Use, caller: Caller) -> dict[str, Any]:
    found = await use.records.run(caller, run)
    if found is None:
        raise NotFound(f"no run {run}", remedy="It may not have reached the log yet; GET /v1/runs lists those that have.")
    return found
