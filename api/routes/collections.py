"""Collections of documents."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dependencies import Caller, ServicesDep

router = APIRouter(tags=["collections"])


@router.get("/collections", operation_id="list_collections")
async def list_collections(services: ServicesDep, caller: Caller) -> dict[str, Any]:
    """List collections."""
    return {"items": await services.listings.list_collections(caller), "next": None}
