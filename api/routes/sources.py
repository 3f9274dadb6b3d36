"""Sources: tables that change, folders, addresses."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from api.access import Use, WholeTenant
from api.audit import AuditedRoute
from schemas.sources import SourceRequest

router = APIRouter(tags=["sources"], route_class=AuditedRoute)
Name = Annotated[str, Path(max_length=255)]


@router.get("/sources", operation_id="list_sources")
async def find(use: Use, caller: WholeTenant) -> dict[str, Any]:
    return {"items": await use.sources.find(caller.tenant), "next": None}


@router.post("/sources", status_code=202, operation_id="add_source")
async def add(source: SourceRequest, use: Use, caller: WholeTenant) -> dict[str, Any]:
    """Its documents come as soon as a worker has read the decision."""
    return await use.sources.add(caller.tenant, source)


@router.post("/sources/reset", status_code=202, operation_id="reset_source")
async def reset(name: Annotated[str, Query(min_length=1, max_length=1024)], use: Use, caller: WholeTenant) -> dict[str, Any]:
    """After its database was restored: what it numbers from now on comes after all that it numbered before. `name` may also be the ce_source of a producer that writes for this tenant only; others need an operator."""
    return await use.sources.reset(caller, name)


@router.get("/sources/{name}", operation_id="get_source")
async def get(name: Name, use: Use, caller: WholeTenant) -> dict[str, Any]:
    return await use.sources.get(caller.tenant, name)


@router.delete("/sources/{name}", status_code=202, operation_id="remove_source")
async def remove(name: Name, use: Use, caller: WholeTenant, withdraw: bool = False) -> dict[str, Any]:
    """Nothing is read from it any more; its documents stay, unless `withdraw`."""
    return await use.sources.remove(caller.tenant, name, withdraw=withdraw)
