"""Reading events once more."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from fastapi import APIRouter

from api.access import Limit, Use, WholeTenant
from api.audit import AuditedRoute
from api.replays import DiscardRequest, RedriveRequest, ReplayRequest

router = APIRouter(tags=["replays"], route_class=AuditedRoute)
STATES: dict[str, str] = {"pause": "paused", "resume": "running", "cancel": "cancelled"}


@router.get("/dead-letters/causes", operation_id="list_causes")
async def causes(use: Use, caller: WholeTenant) -> dict[str, Any]:
    """Open dead letters by stage and code, the most frequent first."""
    return {"items": await use.replays.causes(caller.tenant), "next": None}


@router.post("/dead-letters/redrive", status_code=202, operation_id="redrive")
async def redrive(wanted: RedriveRequest, use: Use, caller: WholeTenant) -> dict[str, Any]:
    """Reads buried events again at their own place, with their own order: what was overtaken meanwhile is closed as superseded."""
    return await use.replays.redrive(caller.tenant, wanted)


@router.post("/dead-letters/discard", operation_id="discard_dead_letters")
async def discard(wanted: DiscardRequest, use: Use, caller: WholeTenant) -> dict[str, Any]:
    """Closes dead letters for good. Their events stay in the log."""
    return await use.replays.discard(caller.tenant, wanted)


@router.post("/replays", status_code=202, operation_id="start_replay")
async def start(wanted: ReplayRequest, use: Use, caller: WholeTenant) -> dict[str, Any]:
    """Lets a stage react once more to events that it has read. What engines said is remembered, so only what they did not answer before costs anything."""
    return await use.replays.replay(caller.tenant, wanted)


@router.get("/replays", operation_id="list_replays")
async def replays(use: Use, caller: WholeTenant, limit: Limit = 50) -> dict[str, Any]:
    return {"items": await use.replays.all(caller.tenant, limit), "next": None}


@router.get("/replays/{replay}", operation_id="get_replay")
async def one(replay: UUID, use: Use, caller: WholeTenant) -> dict[str, Any]:
    """How far it is: events read of all, rate, and how long it will take as a range."""
    return await use.replays.one(caller.tenant, replay)


@router.post("/replays/{replay}/{action}", operation_id="change_replay")
async def change(replay: UUID, action: Literal["pause", "resume", "cancel"], use: Use, caller: WholeTenant) -> dict[str, Any]:
    return await use.replays.set_state(caller.tenant, replay, STATES[action])
