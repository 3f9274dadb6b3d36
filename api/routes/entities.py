"""Entities that documents name, and what connects them."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query

from api.access import After, Caller, Limit, Use
from schemas.errors import NotFound

router = APIRouter(tags=["graph"])
Word = Annotated[str | None, Query(min_length=1, max_length=1024)]


@router.get("/entities", operation_id="list_entities")
async def find(
    use: Use, caller: Caller, text: Word = None, kind: Annotated[str | None, Query(alias="type", max_length=64)] = None, after: After = None, limit: Limit = 50
) -> dict[str, Any]:
    items, following = await use.entities.find(caller, text=text, kind=kind, after=after, limit=limit)
    return {"items": items, "next": following}


@router.get("/entities/{entity}", operation_id="get_entity")
async def get(entity: UUID, use: Use, caller: Caller) -> dict[str, Any]:
    """With its mentions, relations and claims."""
    found = await use.entities.get(caller, entity)
    if found is None:
        raise NotFound(f"no entity {entity}", remedy="GET /v1/entities lists them.")
    return found


@router.get("/graph/subgraph", operation_id="get_subgraph")
async def subgraph(
    use: Use, caller: Caller, seed: Annotated[list[UUID], Query(min_length=1, max_length=50)], hops: Annotated[int, Query(ge=1, le=3)] = 1, limit: Limit = 100
) -> dict[str, Any]:
    """Nodes and edges around some entities."""
    return await use.entities.subgraph(caller, seed, hops=hops, limit=limit)
