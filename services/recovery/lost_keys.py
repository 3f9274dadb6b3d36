"""Keys that a backup of the keystore lacks, and whether the documents that they sealed come in once more by the door."""

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
    """Of each key its tenant."""
    causes: defaultdict[UUID, set[UUID]] = field(default_factory=lambda: defaultdict(set))
    """Of each key of a document, the producers' events that were accepted under it: none where that was before what is read."""

    def add_record(self, stored: StoredRecord) -> None:
        headers, key_tenants = stored.record.headers, parse_encryption_key(stored)
        self.tenants |= key_tenants
        for key in key_tenants if "ce_document" in headers else ():
            cause = headers.get("ce_causationid") if stored.position.topic == ACCEPTED else None
            self.causes[key] |= {UUID(cause.decode())} if cause else set()


async def find_lost_keys(storage: Storage, records: AsyncIterator[StoredRecord]) -> LostKeys:
    """Those of these records that the keystore does not know."""
    lost = LostKeys()
    async for stored in records:
        if storage.codec.is_own_record(stored):
            lost.add_record(stored)
    known_keys = await PgKeystore(storage.pool).fetch(list(lost.tenants))
    for key in known_keys:
        lost.tenants.pop(key)
        lost.causes.pop(key, None)
    return lost


async def find_unrecoverable_keys(storage: Storage, lost: LostKeys, ingress_offsets: Mapping[int, int]) -> set[UUID]:
    """Those keys of documents of which something does not come in once more, where the door goes on at these offsets: it lies before them, topic `raw` does
    not hold it, or the tables know that it was let in. Of questions, and of what names no document, nothing ever comes again."""
    event_ids = set().union(*lost.causes.values())
    rereadable = await _find_rereadable(storage, event_ids, ingress_offsets) - await find_admitted_events(storage.pool, event_ids)
    return {key for key, causes in lost.causes.items() if not causes or causes - rereadable}


async def _find_rereadable(storage: Storage, event_ids: Collection[UUID], ingress_offsets: Mapping[int, int]) -> set[UUID]:
    read_ids: set[UUID] = set()
    if event_ids:
        async for stored in storage.log.read(receive.STAGE.topic, ingress_offsets):
            with suppress(PermanentError):
                read_ids.add((await storage.codec.decode(stored)).id)
    return read_ids.intersection(event_ids)
