"""Collections: what documents were put under one name."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.access import Caller, Use

router = APIRouter(tags=["collections"])


@router.get("/collections", operation_id="list_collections")
async def collections(use: Use, caller: Caller) -> dict[str, Any]:
    return {"items": await use.records.collections(caller), "next": None}
