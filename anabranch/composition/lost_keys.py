"""Keys that a backup of the keystore lacks, and whether the documents that they sealed come in once more by the door."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from anabranch.background.let_in import sealed_with
from anabranch.composition.storage import Storage
from processors import receive
from schemas.errors import PermanentError
from schemas.records import StoredRecord
from sql.keystore import PgKeystore
from sql.recovery import passed_door
from streams.topics import ACCEPTED


@dataclass(slots=True)
class LostKeys:
    tenants: dict[UUID, str] = field(default_factory=dict)
    """Of each key its tenant."""
    causes: defaultdict[UUID, set[UUID]] = field(default_factory=lambda: defaultdict(set))
    """Of each key of a document, the producers' events that were accepted under it: none where that was before what is read."""

    def note(self, stored: StoredRecord) -> None:
        headers, sealed = stored.record.headers, sealed_with(stored)
        self.tenants |= sealed
        for key in sealed if "ce_document" in headers else ():
            cause = headers.get("ce_causationid") if stored.position.topic == ACCEPTED else None
            self.causes[key] |= {UUID(cause.decode())} if cause else set()


async def lost_keys(storage: Storage, records: AsyncIterator[StoredRecord]) -> LostKeys:
    """Those of these records that the keystore does not know."""
    used = LostKeys()
    async for stored in records:
        if storage.codec.is_ours(stored):
            used.note(stored)
    found = await PgKeystore(storage.pool).find(list(used.tenants))
    for key in found:
        used.tenants.pop(key)
        used.causes.pop(key, None)
    return used


async def gone_for_good(storage: Storage, lost: LostKeys, door: Mapping[int, int]) -> set[UUID]:
    """Those keys of documents of which something does not come in once more, where the door goes on at these offsets: it lies before them, topic `raw` does
    not hold it, or the tables know that it was let in. Of questions, and of what names no document, nothing ever comes again."""
    wanted = set().union(*lost.causes.values())
    comes = await _read_again(storage, wanted, door) - await passed_door(storage.pool, wanted)
    return {key for key, causes in lost.causes.items() if not causes or causes - comes}


async def _read_again(storage: Storage, wanted: Collection[UUID], door: Mapping[int, int]) -> set[UUID]:
    found: set[UUID] = set()
    if wanted:
        async for stored in storage.log.read(receive.STAGE.topic, door):
            with suppress(PermanentError):
                found.add((await storage.codec.decode(stored)).id)
    return found.intersection(wanted)
