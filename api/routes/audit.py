"""The audit trail: administrative acts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.access import After, Limit, Use, WholeTenant

router = APIRouter(tags=["audit"])


@router.get("/audit", operation_id="list_audit")
async def list_events(use: Use, caller: WholeTenant, after: After = None, limit: Limit = 50) -> dict[str, Any]:
    """Lists administrative acts, the latest first. An operator who acts for no named tenant sees those of all tenants."""
    everywhere = caller.role == "operator" and caller.home is None
    items, following = await use.audit_events.list_events(None if everywhere else caller.tenant, after=after, limit=limit)
    return {"items": items, "next": following}
