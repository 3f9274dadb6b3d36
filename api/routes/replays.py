"""Redrive dead letters, and replay events."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from fastapi import APIRouter

from api.audit import AuditedRoute
from api.dependencies import PageLimit, ServicesDep, WholeTenant
from schemas.replay_requests import DiscardRequest, RedriveRequest, ReplayRequest

router = APIRouter(tags=["replays"], route_class=AuditedRoute)
STATE_BY_ACTION: dict[str, str] = {"pause": "paused", "resume": "running", "cancel": "cancelled"}


@router.get("/dead-letters/causes", operation_id="list_causes")
async def list_causes(services: ServicesDep, caller: WholeTenant) -> dict[str, Any]:
    """Count open dead letters by stage and code, the most frequent first."""
    return {"items": await services.replays.list_causes(caller.tenant), "next": None}


@router.post("/dead-letters/redrive", status_code=202, operation_id="redrive")
async def redrive_dead_letters(
    body: RedriveRequest, services: ServicesDep, caller: WholeTenant
) -> dict[str, Any]:
    """Process dead letters again, in their original order.

    Events that a newer revision has superseded are closed.
    """
    return await services.replays.redrive(caller.tenant, body)


@router.post("/dead-letters/discard", operation_id="discard_dead_letters")
async def discard_dead_letters(
    body: DiscardRequest, services: ServicesDep, caller: WholeTenant
) -> dict[str, Any]:
    """Close dead letters permanently. Their events stay in the log."""
    return await services.replays.discard_dead_letters(caller.tenant, body)


@router.post("/replays", status_code=202, operation_id="start_replay")
async def start_replay(
    body: ReplayRequest, services: ServicesDep, caller: WholeTenant
) -> dict[str, Any]:
    """Let a stage process events again. Engine results are cached, so only new engine calls cost anything."""
    return await services.replays.start_replay(caller.tenant, body)


@router.get("/replays", operation_id="list_replays")
async def list_replays(
    services: ServicesDep, caller: WholeTenant, limit: PageLimit = 50
) -> dict[str, Any]:
    """List replays."""
    return {"items": await services.replays.list_replays(caller.tenant, limit), "next": None}


@router.get("/replays/{replay}", operation_id="get_replay")
async def get_replay(replay: UUID, services: ServicesDep, caller: WholeTenant) -> dict[str, Any]:
    """Get progress: events processed of all, rate, and the estimated time left as a range."""
    return await services.replays.get_replay(caller.tenant, replay)


@router.post("/replays/{replay}/{action}", operation_id="change_replay")
async def change_replay(
    replay: UUID,
    action: Literal["pause", "resume", "cancel"],
    services: ServicesDep,
    caller: WholeTenant,
) -> dict[str, Any]:
    """Pause, resume or cancel a replay."""
    return await services.replays.set_replay_state(caller.tenant, replay, STATE_BY_ACTION[action])
