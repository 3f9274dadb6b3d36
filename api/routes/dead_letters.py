"""Dead letters: events that a stage could not process. List, redrive and discard them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from api.operations import OperationRoute, operation
from api.services import IdPrefix, PageCursor, PageLimit, PageSort, ServicesDep, WholeTenant
from schemas.replay_requests import DiscardRequest, RedriveRequest
from schemas.responses import Page, ResponseModel, Time

router = APIRouter(route_class=OperationRoute, prefix="/dead-letters")


class DeadLetter(ResponseModel):
    """An event that a stage could not process, and why."""

    event_id: UUID
    stage: str
    generation: str | None = Field(description="Null at ingress, which all generations share.")
    original_type: str | None = Field(description="Type of the event.")
    document_id: UUID | None
    topic: str
    partition: int
    offset: int
    code: str
    detail: str
    remedy: str
    traceback: str | None
    attempts: int
    producer_event_id: str | None = Field(description="`ce_id` of the producer's event.")
    producer_source: str | None = Field(description="`ce_source` of that event.")
    dead_lettered_at: Time
    external_id: str | None
    title: str | None
    filename: str | None
    source_uri: str | None


class DeadLetterCause(ResponseModel):
    stage: str
    code: str
    events: int
    first: Time
    last: Time
    latest_detail: str
    remedy: str


class RedriveReceipt(ResponseModel):
    events: int = Field(description="Dead letters that are processed again.")
    stages: dict[str, int] = Field(description="The same by stage.")
    skipped: int = Field(description="Dead letters that no generation can read any longer.")
    replays: list[UUID] = Field(description="One per stage and generation; none for a dry run.")


class DiscardReceipt(ResponseModel):
    events: int = Field(description="Dead letters that were closed, or would be in a dry run.")


@router.get("", tags=["dead letters"], operation_id="list_dead_letters")
@operation("admin")
async def list_dead_letters(
    services: ServicesDep,
    caller: WholeTenant,
    stage: Annotated[str | None, Query(max_length=64)] = None,
    code: Annotated[str | None, Query(max_length=64)] = None,
    text: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=1024,
            description="Part of the error or of a name of the document.",
        ),
    ] = None,
    id_prefix: IdPrefix = None,
    sort: PageSort = None,
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> Page[DeadLetter]:
    """List open dead letters."""
    page = await services.listings.list_dead_letters(
        caller.tenant,
        stage=stage,
        code=code,
        text=text,
        id_prefix=id_prefix,
        sort=sort,
        after=after,
        limit=limit,
    )
    return Page[DeadLetter].build(*page)


@router.get("/causes", tags=["replays"], operation_id="list_causes")
@operation("admin")
async def list_causes(services: ServicesDep, caller: WholeTenant) -> Page[DeadLetterCause]:
    """Count open dead letters by stage and code, the most frequent first."""
    return Page[DeadLetterCause].build(await services.replays.list_causes(caller.tenant))


@router.post("/redrive", status_code=202, tags=["replays"], operation_id="redrive")
@operation(
    "admin",
    problems="404 NO_SUCH_DEAD_LETTER 422 GENERATION_GONE",
    audit=("dead_letters.redriven", "{events} events"),
)
async def redrive_dead_letters(
    body: RedriveRequest, services: ServicesDep, caller: WholeTenant
) -> RedriveReceipt:
    """Process dead letters again, in their original order.

    Events that a newer revision has superseded are closed.
    """
    return RedriveReceipt.model_validate(await services.replays.redrive(caller.tenant, body))


@router.post("/discard", tags=["replays"], operation_id="discard_dead_letters")
@operation(
    "admin", problems="404 NO_SUCH_DEAD_LETTER", audit=("dead_letters.discarded", "{events} events")
)
async def discard_dead_letters(
    body: DiscardRequest, services: ServicesDep, caller: WholeTenant
) -> DiscardReceipt:
    """Close dead letters permanently. Their events stay in the log."""
    return DiscardReceipt.model_validate(
        await services.replays.discard_dead_letters(caller.tenant, body)
    )
