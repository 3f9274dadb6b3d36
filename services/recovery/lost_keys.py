"""Find keys that a restored keystore lacks, and whether `raw` still has the documents that they
encrypted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from processors import receive
from schemas.errors import PermanentError
from schemas.records import StoredRecord
from services.recovery.accepted_events import parse_encryption_key
from services.storage import Storage
from sql.keystore import PgKeystore
from sql.recovery import find_admitted_events
from streams.topics import ACCEPTED


@dataclass(slots=True)
class LostKeys:
    tenants: dict[UUID, str] = field(default_factory=dict)
    """Tenant by key."""
    causes: defaultdict[UUID, set[UUID]] = field(default_factory=lambda: defaultdict(set))
    """Producers' events accepted under each document key; empty if they lie before the records
    read.
    """

    def add_record(self, stored: StoredRecord) -> None:
        headers, key_tenants = stored.record.headers, parse_encryption_key(stored)
        self.tenants |= key_tenants
        for key in key_tenants if "ce_document" in headers else ():
            cause = headers.get("ce_causationid") if stored.position.topic == ACCEPTED else None
            self.causes[key] |= {UUID(cause.decode())} if cause else set()


async def find_lost_keys(storage: Storage, records: AsyncIterator[StoredRecord]) -> LostKeys:
    """Find the keys of these records that the keystore does not have."""
    lost = LostKeys()
    async for stored in records:
        if storage.codec.is_own_record(stored):
            lost.add_record(stored)
    known_keys = await PgKeystore(storage.pool).fetch(list(lost.tenants))
    for key in known_keys:
        lost.tenants.pop(key)
        lost.causes.pop(key, None)
    return lost


async def find_unrecoverable_keys(
    storage: Storage, lost: LostKeys, ingress_offsets: Mapping[int, int]
) -> set[UUID]:
    """Find the document keys for which an event will not be admitted again.

    The event lies before `ingress_offsets`, `raw` no longer holds it, or the inbox has it. Keys of
    queries, and of records without a document, are never recoverable and not reported.
    """
    event_ids = set().union(*lost.causes.values())
    rereadable = await _find_rereadable(
        storage, event_ids, ingress_offsets
    ) - await find_admitted_events(storage.pool, event_ids)
    return {key for key, causes in lost.causes.items() if not causes or causes - rereadable}


async def _find_rereadable(
    storage: Storage, event_ids: Collection[UUID], ingress_offsets: Mapping[int, int]
) -> set[UUID]:
    read_ids: set[UUID] = set()
    if event_ids:
        async for stored in storage.log.read(receive.STAGE.topic, ingress_offsets):
            with suppress(PermanentError):
                read_ids.add((await storage.codec.decode(stored)).id)
    return read_ids.intersection(event_ids)
