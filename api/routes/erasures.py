"""Permanent erasure, and its receipts."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.dependencies import PageLimit, ServicesDep, WholeTenant
from api.operations import OperationRoute, operation
from api.responses import Page, ResponseModel, Time
from schemas.errors import unknown_resource_error
from schemas.events.control import Scope

router = APIRouter(route_class=OperationRoute, prefix="/erasures", tags=["erasures"])


class ErasureRequest(BaseModel):
    scope: Scope
    name: str = Field(
        min_length=1,
        max_length=1024,
        description="Document id, fact id, collection name, or tenant name.",
    )


class AcceptedErasure(ResponseModel):
    receipt_id: UUID = Field(description="For GET /v1/erasures/{receipt_id}.")
    status: Literal["accepted"] = "accepted"


class ErasureLog(ResponseModel):
    events: int | None = Field(description="Events in the log that can no longer be read.")
    method: str | None = Field(description="How, such as `keys destroyed`.")


class ErasureReceipt(ResponseModel):
    """Removed and remaining data of an erasure; null until it is complete."""

    receipt_id: UUID
    tenant: str
    scope: Scope
    name: str
    state: Literal["running", "done"]
    requested_at: Time
    completed_at: Time | None
    documents: int | None
    removed: dict[str, int] | None = Field(description="Removed rows, keys and files by place.")
    remains: list[str] | None = Field(description="Copies that the erasure cannot reach.")
    raw_until: Time | None = Field(description="When the last event leaves topic `raw`.")
    log: ErasureLog


@router.post("", status_code=202, operation_id="erase")
@operation(
    "admin",
    problems="404 NOT_FOUND 422 FORBIDDEN_TENANT",
    audit=("erasure.requested", "{receipt_id}"),
)
async def request_erasure(
    body: ErasureRequest, services: ServicesDep, caller: WholeTenant
) -> AcceptedErasure:
    """Erase documents or a fact permanently.

    Removes them from tables, history, caches and blobs, and destroys the keys of their events in
    the log. This cannot be undone.
    """
    receipt_id = await services.erasures.request_erasure(caller.tenant, body.scope, body.name)
    return AcceptedErasure(receipt_id=receipt_id)


@router.get("", operation_id="list_erasures")
@operation("admin")
async def list_erasures(
    services: ServicesDep, caller: WholeTenant, limit: PageLimit = 50
) -> Page[ErasureReceipt]:
    """List receipts, the newest first."""
    items = await services.erasures.list_receipts(caller.tenant, limit)
    return Page[ErasureReceipt].model_validate({"items": items, "next": None})


@router.get("/{receipt_id}", operation_id="get_erasure")
@operation("admin", problems="404 NOT_FOUND")
async def get_erasure(
    receipt_id: UUID, services: ServicesDep, caller: WholeTenant
) -> ErasureReceipt:
    """Get a receipt: removed and remaining data. `state` is `running` until the erasure is
    complete.
    """
    fields = await services.erasures.get_receipt(caller.tenant, receipt_id)
    if fields is None:
        raise unknown_resource_error("erasure", receipt_id, "List receipts with GET /v1/erasures.")
    return ErasureReceipt.model_validate(fields)
