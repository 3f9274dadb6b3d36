"""Dead letters: events that a stage could not process."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.dependencies import PageCursor, PageLimit, ServicesDep, WholeTenant

router = APIRouter(tags=["dead letters"])


@router.get("/dead-letters", operation_id="list_dead_letters")
async def list_dead_letters(
    services: ServicesDep,
    caller: WholeTenant,
    stage: Annotated[str | None, Query(max_length=64)] = None,
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> dict[str, Any]:
    """List open dead letters."""
    items, next_cursor = await services.listings.list_dead_letters(
        caller.tenant, stage=stage, after=after, limit=limit
    )
    return {"items": items, "next": next_cursor}
