"""Audit events of administrative actions, published on topic `control`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

from schemas.events import AuditRecorded
from schemas.ports.log import RecordAppender
from schemas.principals import Principal
from schemas.timestamps import utc_now
from schemas.topics import CONTROL
from streams.codec import Codec
from streams.publisher import build_root_event

AUDIT_SOURCE = "anabranch/audit"
VISIT_INTERVAL_S = 900.0
MAX_VISITS = 4096


@dataclass(frozen=True, slots=True)
class AuditLog:
    """Publish audit events.

    Methods return once the log has acknowledged the event; they raise LogUnavailable.
    """

    log: RecordAppender
    codec: Codec
    clock: Callable[[], datetime] = utc_now
    fresh_id: Callable[[], UUID] = uuid4
    _visits: dict[tuple[str, str], datetime] = field(default_factory=dict)

    async def record(
        self,
        caller: Principal,
        action: str,
        subject: str | None,
        request_id: str | None,
        outcome: str = "done",
    ) -> None:
        audit_event = AuditRecorded(
            audit_id=self.fresh_id(),
            actor=caller.id,
            role=caller.role,
            action=action,
            subject=subject,
            tenant=caller.tenant,
            occurred_at=self.clock(),
            request_id=request_id,
            outcome=outcome,
        )
        event = build_root_event(
            audit_event, audit_event.audit_id, AUDIT_SOURCE, self.clock, tenant=caller.tenant
        )
        await self.log.append([await self.codec.encode(event, CONTROL, caller.tenant)])

    async def record_visit(self, caller: Principal, request_id: str | None) -> None:
        """Record that an operator acts for another tenant, at most once per `VISIT_INTERVAL_S`."""
        if caller.home_tenant is None:
            return
        visit, now = (caller.id, caller.tenant), self.clock()
        last = self._visits.get(visit)
        if last is not None and (now - last).total_seconds() < VISIT_INTERVAL_S:
            return
        await self.record(caller, "tenant.entered", caller.tenant, request_id)
        # Only once it is published, so that a failed visit is recorded at the next request.
        self._visits.pop(visit, None)
        self._visits[visit] = now
        if len(self._visits) > MAX_VISITS:
            del self._visits[next(iter(self._visits))]
