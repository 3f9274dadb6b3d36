"""Sources: tables, folders and URLs that documents are read from."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from api.audit import AuditedRoute
from api.dependencies import ServicesDep, WholeTenant
from schemas.sources import SourceRequest

router = APIRouter(tags=["sources"], route_class=AuditedRoute)
SourceName = Annotated[str, Path(max_length=255)]


@router.get("/sources", operation_id="list_sources")
async def list_sources(services: ServicesDep, caller: WholeTenant) -> dict[str, Any]:
    """List sources."""
    return {"items": await services.sources.list_sources(caller.tenant), "next": None}


@router.post("/sources", status_code=202, operation_id="add_source")
async def add_source(
    source: SourceRequest, services: ServicesDep, caller: WholeTenant
) -> dict[str, Any]:
    """Add a source. Its documents arrive once a worker has read the decision."""
    return await services.sources.add_source(caller.tenant, source)


@router.post("/sources/reset", status_code=202, operation_id="reset_source")
async def reset_source(
    name: Annotated[str, Query(min_length=1, max_length=1024)],
    services: ServicesDep,
    caller: WholeTenant,
) -> dict[str, Any]:
    """Accept new sequence numbers after the source's database was restored.

    Numbers from now on order after all earlier ones. `name` may also be the ce_source of a producer that
    writes for this tenant only; others require an operator.
    """
    return await services.sources.reset_source(caller, name)


@router.get("/sources/{name}", operation_id="get_source")
async def get_source(
    name: SourceName, services: ServicesDep, caller: WholeTenant
) -> dict[str, Any]:
    """Get a source."""
    return await services.sources.get_source(caller.tenant, name)


@router.delete("/sources/{name}", status_code=202, operation_id="remove_source")
async def remove_source(
    name: SourceName, services: ServicesDep, caller: WholeTenant, withdraw: bool = False
) -> dict[str, Any]:
    """Stop reading the source. Its documents stay, unless `withdraw` is set."""
    return await services.sources.remove_source(caller.tenant, name, withdraw=withdraw)
