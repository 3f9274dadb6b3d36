"""Generations of the index: list, compare, promote, roll back and drop."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from api.audit import AuditedRoute
from api.dependencies import ServicesDep, WholeTenant, require_whole_tenant
from evaluation.comparison_request import ComparisonBody
from evaluation.promotion_gate import PromotionRequest

router = APIRouter(
    tags=["generations"], route_class=AuditedRoute, dependencies=[Depends(require_whole_tenant)]
)


class PromotionResponse(BaseModel):
    """`promoted` is false when the promotion gate failed, with the reasons; nothing has changed then."""

    generation: str
    previous: str | None = Field(
        description="The generation on standby, which a rollback restores."
    )
    promoted: bool
    reasons: list[str]
    comparison: dict[str, Any] | None = Field(description="The comparison that the gate evaluated.")


class DropResponse(BaseModel):
    generation: str
    removed: bool = Field(
        description="True when all its tables are dropped; false while a transaction still holds one."
    )
    held_by: dict[str, Any] | None
    topics: list[str] = Field(description="Deleted topics, which no other generation uses.")


@router.get("/generations", operation_id="list_generations")
async def list_generations(services: ServicesDep, caller: WholeTenant) -> dict[str, Any]:
    """List generations that are not dropped, with their contents and sizes.

    Below role operator, documents and chunks are the tenant's own, and `bytes` and `build` are null.
    """
    return {"items": await services.generations.list_generations(caller), "next": None}


@router.get("/generations/{name}", operation_id="get_generation")
async def get_generation(name: str, services: ServicesDep, caller: WholeTenant) -> dict[str, Any]:
    """Get a generation."""
    return await services.generations.get_generation(caller, name)


@router.post("/generations/compare", operation_id="compare_generations")
async def compare_generations(
    body: ComparisonBody, services: ServicesDep, caller: WholeTenant
) -> dict[str, Any]:
    """Run the golden queries, and recorded queries of a period, against both generations.

    Responds when all are done.
    """
    return await services.generations.compare(caller.tenant, body.a, body.b, body)


@router.post("/generations/rollback", operation_id="roll_back")
async def roll_back(services: ServicesDep) -> PromotionResponse:
    """Make the previous generation live again."""
    return PromotionResponse.model_validate(await services.generations.roll_back(None))


@router.post("/generations/{name}/rollback", operation_id="roll_back_from")
async def roll_back_generation(name: str, services: ServicesDep) -> PromotionResponse:
    """Make the previous generation live again, provided that the named one is live."""
    return PromotionResponse.model_validate(await services.generations.roll_back(name))


@router.post("/generations/{name}/promote", operation_id="promote_generation")
async def promote_generation(
    name: str, services: ServicesDep, caller: WholeTenant, body: PromotionRequest | None = None
) -> PromotionResponse:
    """Make the generation live, in one transaction.

    Every document that is visible now must be settled in it, and the promotion gate, if given, must pass.
    """
    return PromotionResponse.model_validate(
        await services.generations.promote(caller.tenant, name, body or PromotionRequest())
    )


@router.delete("/generations/{name}", operation_id="drop_generation")
async def drop_generation(name: str, services: ServicesDep) -> DropResponse:
    """Drop the generation and its tables permanently."""
    return DropResponse.model_validate(await services.generations.drop(name))
