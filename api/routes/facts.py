"""Facts that people and applications state."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from api.operations import OperationRoute, operation
from api.services import Caller, PageCursor, PageLimit, ServicesDep, WholeTenant
from schemas.facts import Fact, FactReceipt, FactRejection, FactRequest, FactStatus
from schemas.responses import AcceptedErasure, Page

router = APIRouter(route_class=OperationRoute, prefix="/facts", tags=["facts"])


@router.post("", status_code=202, operation_id="propose_fact")
@operation("writer", problems="404 NOT_FOUND 422 FACT_EXPIRED")
async def propose_fact(
    body: FactRequest, services: ServicesDep, caller: WholeTenant
) -> FactReceipt:
    """Propose a fact. Answers use it once it is approved.

    Responds once the event is durable in the log. To change a fact, propose its replacement with
    `replaces`.
    """
    return await services.facts.propose(caller, body)


@router.get("", operation_id="list_facts")
@operation("reader")
async def list_facts(
    services: ServicesDep,
    caller: Caller,
    status: Annotated[FactStatus | None, Query(description="Only facts in this status.")] = None,
    after: PageCursor = None,
    limit: PageLimit = 50,
) -> Page[Fact]:
    """List the facts that the caller may read, the newest first."""
    page = await services.listings.list_facts(caller, status=status, after=after, limit=limit)
    return Page[Fact].build(*page)


@router.get("/{fact_id}", operation_id="get_fact")
@operation("reader", problems="404 NOT_FOUND")
async def get_fact(fact_id: UUID, services: ServicesDep, caller: Caller) -> Fact:
    """Get a fact."""
    return await services.facts.get(caller, fact_id)


@router.post("/{fact_id}/approve", status_code=202, operation_id="approve_fact")
@operation(
    "admin", problems="404 NOT_FOUND 422 FACT_REPLACED", audit=("fact.approved", "{fact_id}")
)
async def approve_fact(fact_id: UUID, services: ServicesDep, caller: WholeTenant) -> FactReceipt:
    """Approve a fact: answers use it, and no longer the one that it replaces.

    Responds once the decision holds, or after ten seconds with status `accepted`.
    """
    return await services.facts.approve(caller, fact_id)


@router.post("/{fact_id}/reject", status_code=202, operation_id="reject_fact")
@operation(
    "admin", problems="404 NOT_FOUND 422 FACT_REPLACED", audit=("fact.rejected", "{fact_id}")
)
async def reject_fact(
    fact_id: UUID, services: ServicesDep, caller: WholeTenant, body: FactRejection | None = None
) -> FactReceipt:
    """Reject a fact, also one that was approved before: answers do not use it.

    Responds once the decision holds, or after ten seconds with status `accepted`.
    """
    return await services.facts.reject(caller, fact_id, body.reason if body else None)


@router.delete("/{fact_id}", status_code=202, operation_id="delete_fact")
@operation("admin", problems="404 NOT_FOUND", audit=("fact.erased", "{fact_id}"))
async def delete_fact(fact_id: UUID, services: ServicesDep, caller: WholeTenant) -> AcceptedErasure:
    """Erase a fact permanently, with its text in the log and the answers that cite it."""
    receipt_id = await services.erasures.request_erasure(caller.tenant, "fact", str(fact_id))
    return AcceptedErasure(receipt_id=receipt_id)
