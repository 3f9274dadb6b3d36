"""Request erasures and read their receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.errors import InvalidRequest, unknown_resource_error
from schemas.events import ErasureRequested
from schemas.events.erasure import Scope
from schemas.ids import content_id
from schemas.rows import ErasureRequestRow
from services.storage import Storage
from sql.erasure import PgErasure
from sql.erasure_receipts import PgErasureReceipts
from streams.publisher import build_root_event
from streams.topics import CONTROL

CE_SOURCE = "anabranch/api"


@dataclass(frozen=True, slots=True)
class ErasureService:
    storage: Storage
    clock: Callable[[], datetime]
    fresh_id: Callable[[], UUID]

    async def request_erasure(self, tenant: str, scope: Scope, name: str) -> UUID:
        name = _normalize_document_id(name) if scope == "document" else name
        await self._check_scope(tenant, scope, name)
        receipt = self.fresh_id()
        erasure = ErasureRequested(
            receipt_id=receipt, tenant=tenant, scope=scope, subject=name, requested_at=self.clock()
        )
        event = build_root_event(
            erasure, content_id("event", "erasure", receipt), CE_SOURCE, self.clock, tenant=tenant
        )
        await self.storage.log.append(
            [await self.storage.codec.encode(event, CONTROL, str(receipt))]
        )
        # Stage `erase` writes the same row when it consumes the event; until then the caller reads
        # this one.
        await PgErasureReceipts(self.storage.pool).open(
            ErasureRequestRow(receipt, tenant, scope, name, erasure.requested_at)
        )
        return receipt

    async def get_receipt(self, tenant: str, receipt_id: UUID) -> dict[str, Any] | None:
        row = await PgErasureReceipts(self.storage.pool).find(tenant, receipt_id)
        return _format_receipt(row) if row else None

    async def list_receipts(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        return [
            _format_receipt(row)
            for row in await PgErasureReceipts(self.storage.pool).list_newest(tenant, limit)
        ]

    async def _check_scope(self, tenant: str, scope: Scope, name: str) -> None:
        if scope == "tenant" and name != tenant:
            raise InvalidRequest(
                f"Tenant {tenant!r} may not erase tenant {name!r}.",
                code="FORBIDDEN_TENANT",
                remedy="Request the erasure as the tenant itself.",
            )
        if not await PgErasure(self.storage.pool).find_documents(tenant, scope, name):
            raise unknown_resource_error(
                scope,
                repr(name),
                "List documents with GET /v1/documents, collections with GET /v1/collections.",
            )


def _normalize_document_id(document_id: str) -> str:
    """Normalize the spelling of a UUID (RFC 9562, section 4). Other strings match no document."""
    try:
        return str(UUID(document_id))
    except ValueError:
        return document_id


def _format_receipt(row: Mapping[str, Any]) -> dict[str, Any]:
    body = dict(row) | {"state": "running" if row["completed_at"] is None else "done"}
    return body | {"log": {"events": body.pop("events"), "method": body.pop("method")}}
