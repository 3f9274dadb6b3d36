"""Requests for erasure on their way into the log, and their receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from anabranch.composition.storage import Storage
from schemas.errors import InvalidRequest, NotFound
from schemas.events import ErasureRequested
from schemas.events.erasure import Scope
from schemas.ids import content_id
from schemas.rows import ErasureRow
from sql.erasure import PgErasure
from sql.receipts import PgReceipts
from streams.publisher import own_fact
from streams.topics import CONTROL

AUTHOR = "anabranch/api"


@dataclass(frozen=True, slots=True)
class LogErasures:
    """`api.services.Erasures` over the log."""

    storage: Storage
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]

    async def request(self, tenant: str, scope: Scope, name: str) -> UUID:
        name = _as_written(name) if scope == "document" else name
        await self._check(tenant, scope, name)
        receipt = self.fresh_id()
        asked = ErasureRequested(receipt_id=receipt, tenant=tenant, scope=scope, subject=name, requested_at=self.clock())
        fact = own_fact(asked, content_id("event", "erasure", receipt), AUTHOR, self.clock, tenant=tenant)
        await self.storage.log.append([await self.storage.codec.encode(fact, CONTROL, str(receipt))])
        # The stage writes the same row when it reads the event: until then the caller's next question is answered by this one.
        await PgReceipts(self.storage.pool).open(ErasureRow(receipt, tenant, scope, name, asked.requested_at))
        return receipt

    async def receipt(self, tenant: str, receipt_id: UUID) -> dict[str, Any] | None:
        found = await PgReceipts(self.storage.pool).find(tenant, receipt_id)
        return _shown(found) if found else None

    async def receipts(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        return [_shown(row) for row in await PgReceipts(self.storage.pool).newest(tenant, limit)]

    async def _check(self, tenant: str, scope: Scope, name: str) -> None:
        if scope == "tenant" and name != tenant:
            raise InvalidRequest(f"this is tenant {tenant!r}, which may not erase {name!r}", code="FORBIDDEN_TENANT", remedy="A tenant erases itself only.")
        if not await PgErasure(self.storage.pool).documents(tenant, scope, name):
            raise NotFound(f"nothing is known of {scope} {name!r}", remedy="GET /v1/documents lists documents, GET /v1/collections collections.")


def _as_written(document_id: str) -> str:
    """Ids have several spellings (RFC 9562, section 4), and the tables one. What is no id is no document's either."""
    try:
        return str(UUID(document_id))
    except ValueError:
        return document_id


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(row) | {"state": "running" if row["completed_at"] is None else "done"}
    return shown | {"log": {"events": shown.pop("events"), "method": shown.pop("method")}}
