"""Events that a stage could not process."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.access import After, Limit, Use, WholeTenant

router = APIRouter(tags=["dead letters"])


@router.get("/dead-letters", operation_id="list_dead_letters")
async def dead_letters(
    use: Use, caller: WholeTenant, stage: Annotated[str | None, Query(max_length=64)] = None, after: After = None, limit: Limit = 50
) -> dict[str, Any]:
    items, following = await use.records.dead_letters(caller.tenant, stage=stage, after=after, limit=limit)
    return {"items": items, "next": following}
