"""Erase documents: withdraw them, destroy their keys, and remove every trace once nothing of them
is in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog

from schemas.batching import split_evenly
from schemas.events import ErasureCompleted, ErasureRequested, KeysDestroyed
from schemas.ids import compute_file_sha256, content_id, fetch_staging_prefix, upload_staging_prefix
from schemas.ports.engines import BlobStore, StoredBlob
from services.erasure.drain import DrainBarrier
from services.erasure.key_destruction import overwrite_destroyed_shares, seal_events
from services.erasure.service import build_receipt
from services.erasure.withdrawal import DOCUMENTS_PER_BATCH, withdraw_documents
from services.publishing import EventPublisher
from services.storage import Storage
from sql.index.lexical import compact_lexical
from sql.operations.erasure import (
    AFFECTED_TABLES,
    RESENT_COUNT,
    UNSCRUBBED_PREFIX,
    WAL_MARKER,
    PgErasure,
)
from sql.operations.keystore import PgKeystore
from sql.operations.scrubber import scrub_tables, vacuum_tables
from streams.payload_keys import CACHE_TTL_S

log = structlog.get_logger(__name__)
CE_SOURCE = "anabranch/erase"
REASON_PREFIX = "erasure "
"""Prefix of the reason of an erasure's withdrawals; the receipt id follows."""
MAX_ROUNDS = 5
KEY_CACHE_MARGIN_S = 0.5
KEYS_PER_EVENT = 2_000


@dataclass(frozen=True, slots=True)
class DocumentEraser:
    """Carry out erasures. Each step is idempotent; the counts are stored with the receipt."""

    storage: Storage
    clock: Callable[[], datetime]
    is_readable: Callable[[str], bool]
    """True if the tenant's events are unencrypted now."""
    versioned_blobs: bool = False
    """True if the blob store may keep versions of deleted objects."""

    async def erase(self, request: ErasureRequested) -> ErasureCompleted:
        erasure = _Erasure(
            self.storage,
            self.clock,
            request,
            PgErasure(self.storage.pool),
            PgKeystore(self.storage.pool),
        )
        await erasure.run()
        return await build_receipt(
            request,
            self.storage,
            erasure.tables,
            self.clock(),
            readable_now=self.is_readable(request.tenant),
            versioned_blobs=self.versioned_blobs,
        )


@dataclass(frozen=True, slots=True)
class _Erasure:
    storage: Storage
    clock: Callable[[], datetime]
    request: ErasureRequested
    tables: PgErasure
    keystore: PgKeystore

    async def run(self) -> None:
        request, tables = self.request, self.tables
        if await tables.is_done(request.receipt_id):
            return
        # A collection or tenant is found by the rows of its documents, so those in flight are
        # awaited. A single visible document is withdrawn at once, however long an engine takes:
        # events in flight are older than the withdrawal, or the next round finds them.
        if not await tables.has_begun(request.receipt_id) and not (
            request.scope == "document"
            and await tables.fetch_unwithdrawn_orders(request.tenant, [UUID(request.subject)])
        ):
            await DrainBarrier(self.storage).wait_for_arrivals()
        documents = await tables.begin(
            request.receipt_id, request.tenant, request.scope, request.subject
        )
        if request.scope == "tenant":
            await self._destroy_keys(await seal_events(self.storage, request.tenant))
        await self._erase_documents(documents)
        await tables.mark_done(request.receipt_id)

    async def _erase_documents(self, documents: Sequence[UUID]) -> None:
        """Erase in rounds.

        A document that is sent again meanwhile may use a destroyed key or deleted bytes. After
        MAX_ROUNDS, it is withdrawn, and the receipt says so.
        """
        request, tables = self.request, self.tables
        remaining: Sequence[UUID] = documents
        for _ in range(MAX_ROUNDS):
            await self._run_round(remaining)
            remaining = list(await tables.fetch_unwithdrawn_orders(request.tenant, remaining))
            if not remaining:
                break
            log.info(
                "erasure_round_repeated", receipt=str(request.receipt_id), documents=len(remaining)
            )
        # Empty unless a document was sent again in every round.
        await self._withdraw(remaining)
        await tables.add_counts(request.receipt_id, {RESENT_COUNT: len(remaining)})
        # Only folding the lexical counts deletes words that no other document has.
        for generation in await self.storage.generations.fetch_undropped():
            while await compact_lexical(self.storage.pool, generation.name, waits=True):
                await asyncio.sleep(0)
        # Including those that a killed worker destroyed in the table only.
        await overwrite_destroyed_shares(self.storage.pool, self.storage.key_file)
        await self._scrub()

    async def _run_round(self, documents: Sequence[UUID]) -> None:
        tables = self.tables
        # Withdrawn first, so that no query finds it while its data disappear.
        await self._withdraw(documents)
        events = await tables.fetch_event_ids(documents, before=await tables.fetch_time())
        await self._destroy_keys([*documents, *events])
        # By then no process has the keys cached.
        await asyncio.sleep(CACHE_TTL_S + KEY_CACHE_MARGIN_S)
        drain_barrier = DrainBarrier(self.storage)
        # A build may take hours, so the data of serving generations are deleted before.
        if await drain_barrier.has_builds():
            await self._delete_data(documents, await drain_barrier.wait_for_serving())
        before = await drain_barrier.wait_for_all()
        # Events that were in `receive` got new keys.
        await self._destroy_keys(documents)
        await self._delete_data(documents, before)
        await tables.erase_late_jobs(documents, before=await drain_barrier.wait_for_all())

    async def _withdraw(self, documents: Sequence[UUID]) -> None:
        """Withdraw the documents.

        If the tenant's events are readable, every document gets a withdrawal, so that the log alone
        names the erased ones.
        """
        request = self.request
        fetch_orders = (
            self.tables.fetch_latest_orders
            if await self._was_readable()
            else self.tables.fetch_unwithdrawn_orders
        )
        await withdraw_documents(
            self.storage,
            self.clock,
            request.tenant,
            await fetch_orders(request.tenant, documents),
            event_prefix=f"erase/{request.receipt_id}",
            reason=f"{REASON_PREFIX}{request.receipt_id}",
        )

    async def _was_readable(self) -> bool:
        """Return whether events of the tenant are or were unencrypted."""
        return await self.keystore.fetch_readable_since(self.request.tenant) is not None

    async def _destroy_keys(self, subjects: Iterable[UUID]) -> None:
        """Publish `key.destroyed` before destroying: start-up applies it again."""
        receipt, tenant = self.request.receipt_id, self.request.tenant
        publisher = EventPublisher(self.storage.log, self.storage.codec, self.clock)
        all_keys = await self.keystore.fetch_current_ids(tenant, list(subjects))
        for keys in split_evenly(all_keys, KEYS_PER_EVENT):
            # Recorded first: after the destruction a retry would no longer find the keys to count.
            await self.tables.record_items(receipt, "keys", keys)
            event_id = content_id("event", "key.destroyed", *map(str, keys))
            destruction = KeysDestroyed(receipt_id=receipt, tenant=tenant, keys=keys)
            await publisher.publish(destruction, CE_SOURCE, str(receipt), event_id, tenant)
            await self.keystore.destroy(tenant, keys)
            await overwrite_destroyed_shares(self.storage.pool, self.storage.key_file)

    async def _delete_data(self, documents: Sequence[UUID], before: datetime) -> None:
        request, tables = self.request, self.tables
        # The records that cite the documents first: they are found by the documents' rows.
        traces = await tables.find_citing_records(
            request.tenant, documents, all_of_tenant=request.scope == "tenant"
        )
        await self._destroy_keys([*traces.runs, *traces.feedback])
        await tables.erase_citing_records(request.receipt_id, traces)
        is_readable = await self._was_readable()
        uploads = await self.storage.blobs.list_blobs(f"uploads/{request.tenant}/")
        for batch in split_evenly(documents, DOCUMENTS_PER_BATCH):
            events = await tables.fetch_event_ids(batch, before=before)
            keys = await self._find_blobs(batch, events, uploads)
            # Blobs before rows: a retry finds the blobs by the rows.
            await self._delete_blobs(keys)
            await tables.erase_rows(
                request.receipt_id,
                request.tenant,
                batch,
                before=before,
                readable=is_readable,
                deleted_blobs=keys,
            )
            # A document that is sent again meanwhile may become a dead letter between the two.
            while keys := await tables.fetch_record_blobs(batch, events):
                await self._delete_blobs(keys)
                await tables.erase_dead_letters([*batch, *events], keys)

    async def _delete_blobs(self, keys: Sequence[str]) -> None:
        # Recorded by id, so that a repeated step counts each blob once.
        await self.tables.record_items(
            self.request.receipt_id, "blobs", [content_id("blob", key) for key in keys]
        )
        await self.storage.blobs.delete(keys)

    async def _scrub(self) -> None:
        """Rewrite tables on the embedded server. On an external server only vacuum them; the
        receipt names what remains.
        """
        if self.storage.key_file is None:
            await vacuum_tables(self.storage.pool, AFFECTED_TABLES)
            return
        scrub_result = await scrub_tables(self.storage.pool)
        counts = {f"{UNSCRUBBED_PREFIX}{table}": 1 for table in scrub_result.remaining_tables}
        counts[WAL_MARKER] = int(scrub_result.is_wal_remaining)
        await self.tables.add_counts(self.request.receipt_id, counts)

    async def _find_blobs(
        self, documents: Sequence[UUID], events: Sequence[UUID], uploads: Iterable[StoredBlob]
    ) -> list[str]:
        """Return the keys of all blobs with content of the documents; call it before the rows are
        deleted.

        These are blobs under the documents' own prefixes, records stored with dead letters, uploads
        of their events, and older uploads of the tenant with the same bytes.
        """
        blobs, request = self.storage.blobs, self.request
        keys = [
            key
            for document in documents
            for key in await blobs.list_keys(f"{request.tenant}/{document}/")
        ]
        keys += await self.tables.fetch_record_blobs(documents, events)
        prefixes = tuple(
            build_prefix(request.tenant, event)
            for event in events
            for build_prefix in (upload_staging_prefix, fetch_staging_prefix)
        )
        hashes = await self.tables.fetch_content_sizes(documents)
        for stored in uploads:
            is_identical_upload = (
                # A later upload is not part of the request.
                stored.modified_at < request.requested_at
                and await _matches_content_hash(blobs, stored, hashes)
            )
            if is_identical_upload or stored.key.startswith(prefixes):
                keys.append(stored.key)
        return sorted(set(keys))


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
        return await compute_file_sha256(path) in hashes
