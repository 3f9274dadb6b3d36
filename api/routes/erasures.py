"""Permanent erasure, and its receipts."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import PageLimit, ServicesDep, WholeTenant
from schemas.errors import unknown_resource_error
from schemas.events.control import Scope
from schemas.models import Described
from schemas.responses import AcceptedErasure, ErasureReceipt, Page

router = APIRouter(route_class=OperationRoute, prefix="/erasures", tags=["erasures"])


class ErasureRequest(Described):
    scope: Scope
    name: str = Field(min_length=1, max_length=1024)
    """Document id, fact id, collection name, or tenant name."""


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
    return Page[ErasureReceipt].build(await services.erasures.list_receipts(caller.tenant, limit))


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
