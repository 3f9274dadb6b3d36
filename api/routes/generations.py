"""Generations of the index: which there are, how they compare, and which one answers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from api.access import Use, WholeTenant, whole_tenant
from api.audit import AuditedRoute
from evaluation.comparing import ComparisonBody
from evaluation.gate import PromotionRequest

router = APIRouter(tags=["generations"], route_class=AuditedRoute, dependencies=[Depends(whole_tenant)])


class Promotion(BaseModel):
    """`promoted` is false where the gate does not hold, with the reasons; then nothing has changed."""

    generation: str
    previous: str | None = Field(description="that stands by, and to which a rollback leads")
    promoted: bool
    reasons: list[str]
    comparison: dict[str, Any] | None = Field(description="that the gate was held against")


class Drop(BaseModel):
    generation: str
    removed: bool = Field(description="no table of it is left; else a transaction is waited for")
    held_by: dict[str, Any] | None
    topics: list[str] = Field(description="deleted, since no other generation uses them")


@router.get("/generations", operation_id="list_generations")
async def generations(use: Use, caller: WholeTenant) -> dict[str, Any]:
    """Those that are not dropped, with what each shows and takes. Below role operator, documents and chunks are the tenant's own, and `bytes` and `build` null."""
    return {"items": await use.desk.all(caller), "next": None}


@router.get("/generations/{name}", operation_id="get_generation")
async def generation(name: str, use: Use, caller: WholeTenant) -> dict[str, Any]:
    return await use.desk.one(caller, name)


@router.post("/generations/compare", operation_id="compare_generations")
async def compare(wanted: ComparisonBody, use: Use, caller: WholeTenant) -> dict[str, Any]:
    """Asks both the golden questions, and the real ones of a period. Takes as long as that takes."""
    return await use.desk.compare(caller.tenant, wanted.a, wanted.b, wanted)


@router.post("/generations/rollback", operation_id="roll_back")
async def roll_back(use: Use) -> Promotion:
    """The generation that answered before answers again."""
    return Promotion.model_validate(await use.desk.roll_back(None))


@router.post("/generations/{name}/rollback", operation_id="roll_back_from")
async def roll_back_from(name: str, use: Use) -> Promotion:
    """The same, if this is the generation that answers."""
    return Promotion.model_validate(await use.desk.roll_back(name))


@router.post("/generations/{name}/promote", operation_id="promote_generation")
async def promote(name: str, use: Use, caller: WholeTenant, wanted: PromotionRequest | None = None) -> Promotion:
    """In one transaction, if every document that answers now is settled in it, and the gate holds where one is given."""
    return Promotion.model_validate(await use.desk.promote(caller.tenant, name, wanted or PromotionRequest()))


@router.delete("/generations/{name}", operation_id="drop_generation")
async def drop(name: str, use: Use) -> Drop:
    """For good, with its tables."""
    return Drop.model_validate(await use.desk.drop(name))
