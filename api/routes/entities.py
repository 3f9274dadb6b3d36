"""Entities that documents mention, and their relations."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query

from api.dependencies import Caller, PageCursor, PageLimit, ServicesDep
from schemas.errors import unknown_resource_error

router = APIRouter(tags=["graph"])
FilterValue = Annotated[str | None, Query(min_length=1, max_length=1024)]


@router.get("/entities", operation_id="list_entities")
async def list_entities(
    services: ServicesDep,
    caller: Caller,
    text: FilterValue = None,
    kind: Annotated[str | None, Query(alias="type", max_length=64)] = None,
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> dict[str, Any]:
    """List entities."""
    items, next_cursor = await services.entities.list_entities(
        caller, text=text, kind=kind, after=after, limit=limit
    )
    return {"items": items, "next": next_cursor}


@router.get("/entities/{entity}", operation_id="get_entity")
async def get_entity(entity: UUID, services: ServicesDep, caller: Caller) -> dict[str, Any]:
    """Get an entity with its mentions, relations and claims."""
    fields = await services.entities.get_entity(caller, entity)
    if fields is None:
        raise unknown_resource_error("entity", entity, "List entities with GET /v1/entities.")
    return fields


@router.get("/graph/subgraph", operation_id="get_subgraph")
async def get_subgraph(
    services: ServicesDep,
    caller: Caller,
    seed: Annotated[list[UUID], Query(min_length=1, max_length=50)],
    hops: Annotated[int, Query(ge=1, le=3)] = 1,
    limit: PageLimit = 100,
) -> dict[str, Any]:
    """Get the nodes and edges around the given entities."""
    return await services.entities.get_subgraph(caller, seed, hops=hops, limit=limit)
