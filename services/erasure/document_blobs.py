"""Find the blobs of documents that are erased."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from schemas.events import ErasureRequested
from schemas.ids import sha256_of_file
from schemas.ports.engines import BlobStore, StoredBlob
from schemas.staging import fetch_staging_prefix, upload_staging_prefix
from sql.erasure import PgErasure


async def find_document_blobs(
    blobs: BlobStore,
    tables: PgErasure,
    request: ErasureRequested,
    documents: Sequence[UUID],
    uploads: Iterable[StoredBlob],
    before: datetime,
) -> list[str]:
    """Return the keys of all blobs with content of the documents; call it before the rows are
    deleted.

    These are blobs under the documents' own prefixes, records stored with dead letters, uploads of
    their events, and older uploads of the tenant with the same bytes.
    """
    keys = [
        key
        for document in documents
        for key in await blobs.list_keys(f"{request.tenant}/{document}/")
    ]
    events = await tables.fetch_event_ids(documents, before=before)
    keys += await tables.fetch_record_blobs(documents, events)
    prefixes = tuple(_list_event_prefixes(request.tenant, events))
    hashes = await tables.fetch_content_sizes(documents)
    for stored in uploads:
        is_identical_upload = (
            stored.modified_at < request.requested_at
            and await _matches_content_hash(blobs, stored, hashes)
        )
        if is_identical_upload or stored.key.startswith(prefixes):
            keys.append(stored.key)
    return sorted(set(keys))


def _list_event_prefixes(tenant: str, events: Iterable[UUID]) -> Iterable[str]:
    for event in events:
        yield upload_staging_prefix(tenant, event)
        yield fetch_staging_prefix(tenant, event)


async def _matches_content_hash(
    blobs: BlobStore, stored: StoredBlob, hashes: Mapping[str, int]
) -> bool:
    """Return whether the blob has the content of one of the documents.

    Reads only blobs of a matching size.
    """
    if stored.key.rpartition("/")[2] in hashes:
        return True
    if stored.size_bytes not in hashes.values():
        return False
    async with blobs.open_local(stored.key) as path:
        return await asyncio.to_thread(sha256_of_file, path) in hashes
