"""Generations of the index."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.access import Use

router = APIRouter(tags=["generations"])


@router.get("/generations", operation_id="list_generations")
async def generations(use: Use) -> dict[str, Any]:
    return {"items": [one.model_dump(mode="json") for one in await use.generations.undropped()], "next": None}
