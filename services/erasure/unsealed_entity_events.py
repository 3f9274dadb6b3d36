"""Aliases and corrections of entities that were published without sealing them, by an earlier
version or while the tenant kept its events readable.

An erasure destroys keys, which leaves these events readable. On the Postgres log they are sealed
where they stand, so that their keys can be destroyed too; on Kafka they stay, and the receipt says
so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import get_args
from uuid import UUID

from schemas.errors import PermanentError
from schemas.events import EntityAmended, EntityMerged, EntityRetyped, EntitySplit, Event
from schemas.records import StoredRecord
from schemas.topics import CONTROL
from services.storage import Storage
from sql.operations.erasure import PgErasure

EntityEvent = EntityAmended | EntityRetyped | EntityMerged | EntitySplit
_EVENT_TYPES = {event.event_type().encode() for event in get_args(EntityEvent)}


async def read_unsealed_events(
    storage: Storage, tenant: str
) -> AsyncIterator[tuple[StoredRecord, Event[EntityEvent]]]:
    """Yield the tenant's entity events that are not encrypted."""
    async for stored in storage.log.read(CONTROL):
        headers = stored.record.headers
        if headers.get("ce_type") not in _EVENT_TYPES or "ce_keyid" in headers:
            continue
        try:
            event = await storage.codec.decode(stored)
        except PermanentError:
            # Forged or damaged: not an event of any tenant, and already a dead letter.
            continue
        if event.data.tenant == tenant:
            yield stored, event


async def seal_events(storage: Storage, tenant: str) -> set[UUID]:
    """Seal the tenant's unsealed entity events in the Postgres log and return their entities.

    Blocks for one read of topic `control`. A repeated call finds none.
    """
    entities = set[UUID]()
    if not storage.log.is_in_database:
        return entities
    tables = PgErasure(storage.pool)
    async for stored, event in read_unsealed_events(storage, tenant):
        key = (stored.record.key or b"").decode()
        sealed = await storage.codec.encode(event, CONTROL, key)
        # A tenant whose events are not encrypted has no keys.
        if "ce_keyid" in sealed.headers:
            await tables.replace_event(stored.position.offset, sealed)
            entities.add(event.data.entity_id)
    return entities
