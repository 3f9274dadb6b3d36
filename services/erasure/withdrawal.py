"""Withdraw many documents through the log, as a deletion of each document would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from schemas.batching import split_evenly
from schemas.events import CollectionDeleted, CollectionDeletionRequested, DocumentWithdrawn
from schemas.topics import Record
from services.erasure.drain import DrainBarrier
from services.storage import Storage
from sql.catalog.collections import PgCollections
from sql.operations.erasure import PgErasure
from streams.publisher import build_raw_record

POLL_S = 0.2
DOCUMENTS_PER_BATCH = 200
"""Documents per append."""


async def withdraw_documents(
    storage: Storage,
    clock: Callable[[], datetime],
    tenant: str,
    orders: Mapping[UUID, list[int]],
    *,
    event_prefix: str,
    reason: str,
) -> None:
    """Withdraw the documents with these latest orders, and wait until the tables say so.

    Goes through stage `receive`, so that the withdrawals are ordered and reach every generation.
    """

    async def build_withdrawal(document: UUID, order: list[int]) -> Record:
        data = DocumentWithdrawn(tenant=tenant, document_id=str(document), reason=reason)
        # A retry sends the same id. A document that was sent again has another order, so another
        # id.
        event_id = f"{event_prefix}/{document}/{'.'.join(map(str, order))}"
        return await build_raw_record(
            data, event_id, time=clock(), codec=storage.codec, document_id=document
        )

    for batch in split_evenly(list(orders.items()), DOCUMENTS_PER_BATCH):
        await storage.log.append([await build_withdrawal(*item) for item in batch])
    while await PgErasure(storage.pool).has_pending_withdrawal(orders):
        await asyncio.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class DocumentCollectionDeleter:
    storage: Storage
    clock: Callable[[], datetime]

    async def delete(
        self, request: CollectionDeletionRequested, received_until: datetime
    ) -> CollectionDeleted | None:
        """Withdraw the documents that the log had received by this time.

        Returns None if the deletion is complete already. A repeated call resumes it.
        """
        if await PgCollections(self.storage.pool).is_deleted(request.deletion_id):
            return None
        # A document that is still being processed may belong to the collection, or leave it.
        await DrainBarrier(self.storage).wait_for_arrivals()
        orders = await PgCollections(self.storage.pool).fetch_deletable(
            request.tenant, request.collection, received_until
        )
        await withdraw_documents(
            self.storage,
            self.clock,
            request.tenant,
            orders,
            event_prefix=f"delete/{request.deletion_id}",
            reason=f"deletion of collection {request.collection}",
        )
        return CollectionDeleted(
            deletion_id=request.deletion_id,
            tenant=request.tenant,
            collection=request.collection,
            completed_at=self.clock(),
        )
