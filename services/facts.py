"""Propose, approve and reject facts. Erasing one is an erasure like that of a document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from cachetools import TTLCache

from schemas.errors import InvalidRequest, NotFound, unknown_resource_error
from schemas.events import FactApproved, FactProposed, FactRejected
from schemas.facts import Fact, FactReceipt, FactRequest, FactStatus
from schemas.ids import content_id
from schemas.principals import Principal
from services.background_tasks import poll_until
from services.publishing import EventPublisher
from sql.catalog.facts import PgFacts

CE_SOURCE = "anabranch/api"
# How long a fact that was just proposed may take to reach the tables.
FACT_WAIT_S = 2.0
# How long a decision may take to reach the tables before the receipt says `accepted`.
DECISION_WAIT_S = 10.0
# Seconds in which the tables may lack a fact that this process has published.
PENDING_S = 10.0
MAX_PENDING = 10_000

FactKey = tuple[str, str, str, str, tuple[str, ...] | None]
"""Tenant, subject, predicate, object and readers: what makes two facts equal."""


@dataclass(frozen=True, slots=True)
class FactService:
    """Every method raises NotFound for a fact that the caller may not read, and LogUnavailable."""

    publisher: EventPublisher
    facts: PgFacts
    decision_wait_s: float = DECISION_WAIT_S
    pending: TTLCache[FactKey, UUID] = field(
        default_factory=lambda: TTLCache(MAX_PENDING, PENDING_S)
    )

    async def propose(self, caller: Principal, request: FactRequest) -> FactReceipt:
        """Publish the fact, unless its equal is proposed or approved.

        Raises InvalidRequest if it is expired already.
        """
        now = self.publisher.clock()
        if request.expires_at is not None and request.expires_at <= now:
            raise InvalidRequest(
                f"expires_at {request.expires_at.isoformat()} is in the past.",
                code="FACT_EXPIRED",
                remedy="Use a later time, or omit it.",
            )
        if request.replaces is not None:
            await self._await_fact(caller, request.replaces)
        elif equal := await self.facts.find_equal(caller.tenant, request, now):
            return FactReceipt(fact_id=equal, duplicate=True)
        key = _build_key(caller.tenant, request)
        if request.replaces is None and (equal := await self._find_pending(caller, key)):
            return FactReceipt(fact_id=equal, duplicate=True)
        fact_id = self.pending[key] = self.publisher.fresh_id()
        try:
            await self._publish(
                FactProposed(
                    fact_id=fact_id,
                    tenant=caller.tenant,
                    stated_by=caller.id,
                    stated_at=now,
                    **request.model_dump(),
                )
            )
        except BaseException:
            self.pending.pop(key, None)
            raise
        return FactReceipt(fact_id=fact_id)

    async def approve(self, caller: Principal, fact_id: UUID) -> FactReceipt:
        """Publish the approval and wait until it holds.

        Raises InvalidRequest for a replaced fact.
        """
        return await self._decide(caller, fact_id, "approved", FactApproved)

    async def reject(self, caller: Principal, fact_id: UUID, reason: str | None) -> FactReceipt:
        """Publish the rejection and wait until it holds.

        Raises InvalidRequest for a replaced fact.
        """
        return await self._decide(caller, fact_id, "rejected", partial(FactRejected, reason=reason))

    async def get(self, caller: Principal, fact_id: UUID) -> Fact:
        if (fact := await self.facts.find(caller, fact_id)) is None:
            raise _unknown_fact_error(fact_id)
        return fact

    async def _find_pending(self, caller: Principal, key: FactKey) -> UUID | None:
        """Return the equal fact that this process published and the tables do not show yet."""
        fact_id = self.pending.get(key)
        # What the tables show was compared with them already: it may have been rejected since.
        if fact_id is None or await self.facts.find(caller, fact_id) is not None:
            return None
        return fact_id

    async def _decide(
        self,
        caller: Principal,
        fact_id: UUID,
        status: FactStatus,
        build: Callable[..., FactApproved | FactRejected],
    ) -> FactReceipt:
        if (await self._await_fact(caller, fact_id)).status == "replaced":
            raise InvalidRequest(
                f"Fact {fact_id} was replaced.",
                code="FACT_REPLACED",
                remedy="Propose the fact again.",
            )
        decision = build(
            fact_id=fact_id,
            tenant=caller.tenant,
            decided_by=caller.id,
            decided_at=self.publisher.clock(),
        )
        await self._publish(decision)

        # So that the next answer knows of it.
        async def is_projected() -> bool:
            fact = await self.facts.find(caller, fact_id)
            return fact is not None and fact.status == status

        is_applied = await poll_until(is_projected, self.decision_wait_s)
        return FactReceipt(fact_id=fact_id, status="applied" if is_applied else "accepted")

    async def _await_fact(self, caller: Principal, fact_id: UUID) -> Fact:
        """Return the fact; wait for one whose event is on its way."""
        fact = await poll_until(partial(self.facts.find, caller, fact_id), FACT_WAIT_S)
        if fact is None:
            raise _unknown_fact_error(fact_id)
        return fact

    async def _publish(self, data: FactProposed | FactApproved | FactRejected) -> None:
        event_id = content_id("event", data.name, self.publisher.fresh_id())
        await self.publisher.publish(data, CE_SOURCE, str(data.fact_id), event_id, data.tenant)


def _unknown_fact_error(fact_id: UUID) -> NotFound:
    return unknown_resource_error(
        "fact", fact_id, "List facts with `anabranch facts list` or GET /v1/facts."
    )


def _build_key(tenant: str, request: FactRequest) -> FactKey:
    readers = None if request.readers is None else tuple(request.readers)
    return tenant, request.subject, request.predicate, request.object, readers
