"""Erasing for good, and the receipts of it."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from api.audit import AuditedRoute
from api.dependencies import ServicesDep, WholeTenant
from schemas.errors import NotFound
from schemas.events.erasure import Scope

router = APIRouter(prefix="/erasures", tags=["erasures"], route_class=AuditedRoute)


class ErasureRequest(BaseModel):
    scope: Scope
    name: str = Field(min_length=1, max_length=1024, description="the document's id, the collection's name, or the tenant's")


@router.post("", status_code=202, operation_id="erase")
async def request_erasure(body: ErasureRequest, services: ServicesDep, caller: WholeTenant) -> dict[str, Any]:
    """Removes documents from tables, history, caches and blobs, and destroys the keys of what the log says of them. There is no way back."""
    return {"receipt_id": await services.erasures.request_erasure(caller.tenant, body.scope, body.name), "status": "accepted"}


@router.get("", operation_id="list_erasures")
async def list_erasures(services: ServicesDep, caller: WholeTenant, limit: Annotated[int, Query(ge=1, le=500)] = 50) -> dict[str, Any]:
    """The newest first."""
    return {"items": await services.erasures.list_receipts(caller.tenant, limit), "next": None}


@router.get("/{receipt_id}", operation_id="get_erasure")
async def get_erasure(receipt_id: UUID, services: ServicesDep, caller: WholeTenant) -> dict[str, Any]:
    """What was removed and what remains; `state` is `running` until it is done."""
    fields = await services.erasures.get_receipt(caller.tenant, receipt_id)
    if fields is None:
        raise NotFound(f"no erasure {receipt_id}", remedy="GET /v1/erasures lists them.")
    return fields
