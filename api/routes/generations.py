"""Generations of the index: which there are, how they compare, and which one answers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from api.audit import AuditedRoute
from api.dependencies import ServicesDep, WholeTenant, require_whole_tenant
from evaluation.comparison_request import ComparisonBody
from evaluation.promotion_gate import PromotionRequest

router = APIRouter(tags=["generations"], route_class=AuditedRoute, dependencies=[Depends(require_whole_tenant)])


class PromotionResponse(BaseModel):
    """`promoted` is false where the gate does not hold, with the reasons; then nothing has changed."""

    generation: str
    previous: str | None = Field(description="that stands by, and to which a rollback leads")
    promoted: bool
    reasons: list[str]
    comparison: dict[str, Any] | None = Field(description="that the gate was held against")


class DropResponse(BaseModel):
    generation: str
    removed: bool = Field(description="no table of it is left; else a transaction is waited for")
    held_by: dict[str, Any] | None
    topics: list[str] = Field(description="deleted, since no other generation uses them")


@router.get("/generations", operation_id="list_generations")
async def list_generations(services: ServicesDep, caller: WholeTenant) -> dict[str, Any]:
    """Those that are not dropped, with what each shows and takes. Below role operator, documents and chunks are the tenant's own, and `bytes` and `build` null."""
    return {"items": await services.generations.list_generations(caller), "next": None}


@router.get("/generations/{name}", operation_id="get_generation")
async def get_generation(name: str, services: ServicesDep, caller: WholeTenant) -> dict[str, Any]:
    return await services.generations.get_generation(caller, name)


@router.post("/generations/compare", operation_id="compare_generations")
async def compare_generations(body: ComparisonBody, services: ServicesDep, caller: WholeTenant) -> dict[str, Any]:
    """Asks both the golden questions, and the real ones of a period. Takes as long as that takes."""
    return await services.generations.compare(caller.tenant, body.a, body.b, body)


@router.post("/generations/rollback", operation_id="roll_back")
async def roll_back(services: ServicesDep) -> PromotionResponse:
    """The generation that answered before answers again."""
    return PromotionResponse.model_validate(await services.generations.roll_back(None))


@router.post("/generations/{name}/rollback", operation_id="roll_back_from")
async def roll_back_generation(name: str, services: ServicesDep) -> PromotionResponse:
    """The same, if this is the generation that answers."""
    return PromotionResponse.model_validate(await services.generations.roll_back(name))


@router.post("/generations/{name}/promote", operation_id="promote_generation")
async def promote_generation(name: str, services: ServicesDep, caller: WholeTenant, body: PromotionRequest | None = None) -> PromotionResponse:
    """In one transaction, if every document that answers now is settled in it, and the gate holds where one is given."""
    return PromotionResponse.model_validate(await services.generations.promote(caller.tenant, name, body or PromotionRequest()))


@router.delete("/generations/{name}", operation_id="drop_generation")
async def drop_generation(name: str, services: ServicesDep) -> DropResponse:
    """For good, with its tables."""
    return DropResponse.model_validate(await services.generations.drop(name))
