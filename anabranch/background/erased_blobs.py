"""Which blobs hold something of some documents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from schemas.events import ErasureRequested
from schemas.ids import sha256_of_file
from schemas.ports.engines import Blobs, Stored
from schemas.staging import fetched_prefix, staged_prefix
from sql.erasure import PgErasure


async def blobs_of(
    blobs: Blobs, tables: PgErasure, request: ErasureRequested, documents: Sequence[UUID], uploads: Iterable[Stored], before: datetime
) -> list[str]:
    """Keys, to be asked before the rows go, which say most of it: what lies under the documents' own names, what was kept of buried events, and of the tenant's
    uploads those of their events, and those with the same bytes, whoever put them there, that are older than the request."""
    keys = [key for document in documents for key in await blobs.listed(f"{request.tenant}/{document}/")]
    events = await tables.event_ids(documents, before=before)
    keys += await tables.record_blobs(documents, events)
    prefixes = tuple(_of_events(request.tenant, events))
    hashes = await tables.content_hashes(documents)
    for stored in uploads:
        same = stored.modified < request.requested_at and await _holds(blobs, stored, hashes)
        if same or stored.key.startswith(prefixes):
            keys.append(stored.key)
    return sorted(set(keys))


def _of_events(tenant: str, events: Iterable[UUID]) -> Iterable[str]:
    for event in events:
        yield staged_prefix(tenant, event)
        yield fetched_prefix(tenant, event)


async def _holds(blobs: Blobs, stored: Stored, hashes: Mapping[str, int]) -> bool:
    """The bytes of one of these; its name may tell, and only what has their size is read."""
    if stored.key.rpartition("/")[2] in hashes:
        return True
    if stored.size not in hashes.values():
        return False
    async with blobs.local(stored.key) as path:
        return await asyncio.to_thread(sha256_of_file, path) in hashes
