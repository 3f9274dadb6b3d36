"""Overwrite the shares of destroyed keys, and repeat the destructions that the log records.

Aliases and corrections of entities may be unsealed, published by an earlier version or while the
tenant kept its events readable: without a key to destroy, they stay readable. On the Postgres log
they are sealed where they stand, so that their keys can be destroyed too; on Kafka they stay, and
the receipt says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import get_args
from uuid import UUID

import structlog

from schemas.errors import PermanentError
from schemas.events import (
    EntityAmended,
    EntityMerged,
    EntityRetyped,
    EntitySplit,
    Event,
    KeysDestroyed,
)
from schemas.ports.log import EventLog
from schemas.topics import CONTROL, StoredRecord
from services.storage import ShareFile, Storage
from sql.database import Pool
from sql.operations.erasure import PgErasure
from sql.operations.keystore import PgKeystore
from streams.codec import Codec

log = structlog.get_logger(__name__)


async def overwrite_destroyed_shares(pool: Pool, key_file: ShareFile | None) -> None:
    """Overwrite the shares of all destroyed keys, including those whose destruction a crash
    interrupted.
    """
    if key_file is not None:
        await asyncio.to_thread(key_file.overwrite, await PgKeystore(pool).fetch_destroyed_slots())


async def reapply_key_destruction(
    event_log: EventLog, codec: Codec, pool: Pool, key_file: ShareFile | None = None
) -> dict[UUID, int]:
    """Destroy the keys that `key.destroyed` events name; the keystore may be an older backup that
    still has them.

    Returns each erasure receipt with the offset of its first event. Raises NewerVersion for an
    event of a newer program.
    """
    receipt_offsets: dict[UUID, int] = {}
    keystore, type_prefix = PgKeystore(pool), f"{KeysDestroyed.name}.v".encode()
    async for stored in event_log.read(CONTROL):
        if stored.record.headers.get("ce_type", b"").startswith(type_prefix):
            try:
                event = await codec.decode(stored)
            # Forged or damaged: applying it would destroy keys for good.
            except PermanentError as error:
                log.warning(
                    "event_skipped", topic=CONTROL, offset=stored.position.offset, code=error.code
                )
                continue
            await keystore.destroy(event.data.tenant, event.data.keys)
            receipt_offsets.setdefault(event.data.receipt_id, stored.position.offset)
    await overwrite_destroyed_shares(pool, key_file)
    return receipt_offsets


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
