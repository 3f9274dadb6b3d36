"""The audit trail of administrative actions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dependencies import PageCursor, PageLimit, ServicesDep, WholeTenant

router = APIRouter(tags=["audit"])


@router.get("/audit", operation_id="list_audit")
async def list_audit_events(
    services: ServicesDep, caller: WholeTenant, after: PageCursor = None, limit: PageLimit = 50
) -> dict[str, Any]:
    """List administrative actions, the latest first.

    An operator who acts for no named tenant sees those of all tenants.
    """
    sees_all_tenants = caller.role == "operator" and caller.home_tenant is None
    items, next_cursor = await services.audit_events.list_events(
        None if sees_all_tenants else caller.tenant, after=after, limit=limit
    )
    return {"items": items, "next": next_cursor}
