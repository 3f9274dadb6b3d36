"""Permanent erasure, and its receipts."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from api.audit import AuditedRoute
from api.dependencies import ServicesDep, WholeTenant
from schemas.errors import unknown_resource_error
from schemas.events.erasure import Scope

router = APIRouter(prefix="/erasures", tags=["erasures"], route_class=AuditedRoute)


class ErasureRequest(BaseModel):
    scope: Scope
    name: str = Field(
        min_length=1, max_length=1024, description="Document id, collection name, or tenant name."
    )


@router.post("", status_code=202, operation_id="erase")
async def request_erasure(
    body: ErasureRequest, services: ServicesDep, caller: WholeTenant
) -> dict[str, Any]:
    """Erase documents permanently.

    Removes them from tables, history, caches and blobs, and destroys the keys of their events in the log.
    This cannot be undone.
    """
    return {
        "receipt_id": await services.erasures.request_erasure(caller.tenant, body.scope, body.name),
        "status": "accepted",
    }


@router.get("", operation_id="list_erasures")
async def list_erasures(
    services: ServicesDep, caller: WholeTenant, limit: Annotated[int, Query(ge=1, le=500)] = 50
) -> dict[str, Any]:
    """List receipts, the newest first."""
    return {"items": await services.erasures.list_receipts(caller.tenant, limit), "next": None}


@router.get("/{receipt_id}", operation_id="get_erasure")
async def get_erasure(
    receipt_id: UUID, services: ServicesDep, caller: WholeTenant
) -> dict[str, Any]:
    """Get a receipt: removed and remaining data. `state` is `running` until the erasure is complete."""
    fields = await services.erasures.get_receipt(caller.tenant, receipt_id)
    if fields is None:
        raise unknown_resource_error("erasure", receipt_id, "List receipts with GET /v1/erasures.")
    return fields
