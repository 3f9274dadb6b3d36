"""Delete a collection: withdraw its documents, also those that are still being processed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from schemas.events import CollectionDeleted, CollectionDeletionRequested
from services.erasure.drain import DrainBarrier
from services.erasure.withdrawal import withdraw_documents
from services.storage import Storage
from sql.catalog.collections import PgCollections


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
