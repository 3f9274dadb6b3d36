"""Collections: what documents were put under one name."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dependencies import Caller, ServicesDep

router = APIRouter(tags=["collections"])


@router.get("/collections", operation_id="list_collections")
async def list_collections(services: ServicesDep, caller: Caller) -> dict[str, Any]:
    return {"items": await services.listings.list_collections(caller), "next": None}
