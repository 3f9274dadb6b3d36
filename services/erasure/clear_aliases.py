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
from sql.erasure import PgErasure

Amendment = EntityAmended | EntityRetyped | EntityMerged | EntitySplit
_EVENT_TYPES = {event.event_type().encode() for event in get_args(Amendment)}


async def read_clear_amendments(
    storage: Storage, tenant: str
) -> AsyncIterator[tuple[StoredRecord, Event[Amendment]]]:
    """Yield the tenant's amendments of entities that have no key."""
    async for stored in storage.log.read(CONTROL):
        headers = stored.record.headers
        if headers.get("ce_type") not in _EVENT_TYPES or "ce_keyid" in headers:
            continue
        try:
            event = await storage.codec.decode(stored)
        except PermanentError:
            # Forged or damaged: no alias of a tenant, and a dead letter already.
            continue
        if event.data.tenant == tenant:
            yield stored, event


async def seal_clear_amendments(storage: Storage, tenant: str) -> set[UUID]:
    """Seal the tenant's clear amendments in the Postgres log and return their entities.

    Blocks for one read of topic `control`. A repeated call finds none.
    """
    entities = set[UUID]()
    if not storage.log.is_in_database:
        return entities
    tables = PgErasure(storage.pool)
    async for stored, event in read_clear_amendments(storage, tenant):
        key = (stored.record.key or b"").decode()
        sealed = await storage.codec.encode(event, CONTROL, key)
        # A tenant whose events are not encrypted has no keys.
        if "ce_keyid" in sealed.headers:
            await tables.replace_event(stored.position.offset, sealed)
            entities.add(event.data.entity_id)
    return entities
