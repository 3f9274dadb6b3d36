"""Replay events: let a stage process them again."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import PageLimit, ServicesDep, WholeTenant
from schemas.replay_requests import ReplayRequest
from schemas.responses import DurationRange, JsonObject, Page, ResponseModel, Time

router = APIRouter(route_class=OperationRoute, tags=["replays"])
STATE_BY_ACTION: dict[str, str] = {"pause": "paused", "resume": "running", "cancel": "cancelled"}


class MissingOffsets(ResponseModel):
    partition: int
    start: int
    end: int = Field(description="Exclusive.")


class ReplayReceipt(ResponseModel):
    """A started replay, or the estimate of a dry run."""

    replay_id: UUID | None = Field(description="Null for a dry run.")
    stage: str
    topic: str
    events_read: int
    starts: dict[int, int] = Field(description="First offset by partition.")
    ends: dict[int, int] = Field(description="Offset after the last, by partition.")
    missing: list[MissingOffsets] = Field(description="Offsets that retention has removed.")
    events_chosen: int = Field(0, description="Only of a dry run: events that match the selection.")


class Replay(ResponseModel):
    replay_id: UUID
    tenant: str
    kind: Literal["replay", "redrive"]
    stage: str
    generation: str | None = Field(description="Null at ingress, which all generations share.")
    selection: JsonObject = Field(description="The criteria of the request.")
    state: str = Field(description="running, paused, done, failed or cancelled.")
    per_second: float | None
    total: int
    read: int
    replayed: int
    superseded: int
    dead_lettered: int = Field(description="Events that failed again.")
    error: str | None
    created_at: Time
    started_at: Time | None
    ended_at: Time | None
    rate: float | None = Field(description="Events per second.")
    remaining: int = Field(description="Events to be read yet.")
    eta_s: DurationRange | None = Field(description="Estimated seconds left.")


@router.post(
    "/replays", status_code=202, operation_id="start_replay", response_model_exclude_unset=True
)
@operation(
    "admin",
    problems="404 NOT_FOUND 409 NOT_RETAINED 422 UNKNOWN_STAGE",
    audit=("replay.started", "{replay_id}"),
)
async def start_replay(
    body: ReplayRequest, services: ServicesDep, caller: WholeTenant
) -> ReplayReceipt:
    """Let a stage process events again. Engine results are cached, so only new engine calls cost
    anything.
    """
    return ReplayReceipt.model_validate(await services.replays.start_replay(caller.tenant, body))


@router.get("/replays", operation_id="list_replays")
@operation("admin")
async def list_replays(
    services: ServicesDep, caller: WholeTenant, limit: PageLimit = 50
) -> Page[Replay]:
    """List replays."""
    return Page[Replay].build(await services.replays.list_replays(caller.tenant, limit))


@router.get("/replays/{replay}", operation_id="get_replay")
@operation("admin", problems="404 NOT_FOUND")
async def get_replay(replay: UUID, services: ServicesDep, caller: WholeTenant) -> Replay:
    """Get progress: events processed of all, rate, and the estimated time left as a range."""
    return Replay.model_validate(await services.replays.get_replay(caller.tenant, replay))


@router.post("/replays/{replay}/{action}", operation_id="change_replay")
@operation(
    "admin", problems="404 NOT_FOUND 422 WRONG_STATE", audit=("replay.changed", "{replay} {action}")
)
async def change_replay(
    replay: UUID,
    action: Literal["pause", "resume", "cancel"],
    services: ServicesDep,
    caller: WholeTenant,
) -> Replay:
    """Pause, resume or cancel a replay."""
    return Replay.model_validate(
        await services.replays.set_replay_state(caller.tenant, replay, STATE_BY_ACTION[action])
    )
