"""Erasing documents for good: withdrawn first, then their keys destroyed, then, when nothing of them is under way any more, every trace removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

import structlog

from anabranch.background.erased_blobs import blobs_of
from anabranch.background.erasure_receipt import written
from anabranch.background.passing import Passing
from anabranch.composition.sealing import overwrite_destroyed
from anabranch.composition.storage import Storage
from schemas.events import DocumentWithdrawn, ErasureCompleted, ErasureRequested, KeysDestroyed
from schemas.ids import content_id
from schemas.records import Record
from sql.compaction import compact_lexical
from sql.erasure import AGAIN, TOUCHED, UNSCRUBBED, WRITE_AHEAD, PgErasure
from sql.generations import PgGenerations
from sql.keystore import PgKeystore
from sql.scrubbing import scrub, vacuum
from streams.keys import REMEMBERED_S
from streams.publisher import own_fact
from streams.submission import submission
from streams.topics import CONTROL

log = structlog.get_logger(__name__)
AUTHOR = "anabranch/erase"
REASON = "erasure "
"""What the reason of a withdrawal begins with that an erasure states; the receipt's id follows."""
POLL_S = 0.2
ROUNDS = 5
MARGIN_S = 0.5
TOGETHER = 200
"""Documents of one transaction."""
KEYS_TOGETHER = 2_000
"""Of one event."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogEraser:
    """`schemas.ports.erasure.Eraser` over log, tables and blobs. Each step may be repeated; counts are kept beside."""

    storage: Storage
    clock: Callable[[], datetime]
    readable: Callable[[str], bool]
    """Whose events are not sealed now."""
    versioned_blobs: bool = False
    """Whether the blob store may keep versions of what was deleted."""

    async def erase(self, request: ErasureRequested) -> ErasureCompleted:
        tables = PgErasure(self.storage.pool)
        if not await tables.is_done(request.receipt_id):
            if not await tables.is_begun(request.receipt_id):
                await self._await_what_was_sent(tables, request)
            documents = await tables.begin(request.receipt_id, request.tenant, request.scope, request.subject)
            await self._erased(tables, request, documents)
            await tables.done(request.receipt_id)
        return await written(request, self.storage, tables, self.clock(), readable_now=self.readable(request.tenant), versioned_blobs=self.versioned_blobs)

    async def _await_what_was_sent(self, tables: PgErasure, request: ErasureRequested) -> None:
        """Only who has come is found by collection or tenant. A document that may answer is withdrawn at once, however long an engine is at work: what is on its
        way of it is older than its withdrawal, or is found by a further round."""
        if request.scope != "document" or not await tables.unwithdrawn(request.tenant, [UUID(request.subject)]):
            await Passing(self.storage).arrived()

    async def _erased(self, tables: PgErasure, request: ErasureRequested, documents: Sequence[UUID]) -> None:
        """What comes again meanwhile may be under a key that is gone, or want bytes that are: it is erased as well. Whoever never stops sending is withdrawn
        in the end, and the receipt says so."""
        left: Sequence[UUID] = documents
        for _ in range(ROUNDS):
            await self._once(tables, request, left)
            left = list(await tables.unwithdrawn(request.tenant, left))
            if not left:
                break
            log.info("erasing what came meanwhile", receipt=str(request.receipt_id), documents=len(left))
        await self._withdraw(tables, request, left)
        await tables.note(request.receipt_id, {AGAIN: len(left)})
        await self._compact()
        await overwrite_destroyed(self.storage.pool, self.storage.key_file)  # also those that a killed worker had destroyed only in the table
        await self._scrub(tables, request)

    async def _once(self, tables: PgErasure, request: ErasureRequested, documents: Sequence[UUID]) -> None:
        await self._withdraw(tables, request, documents)
        await self._destroy_keys(tables, request, [*documents, *await tables.event_ids(documents, before=await tables.now())])
        await asyncio.sleep(REMEMBERED_S + MARGIN_S)  # by then no process opens anything with them any more
        passing = Passing(self.storage)
        if await passing.builds():
            await self._clear(tables, request, documents, await passing.answering())
        before = await passing.all()
        await self._destroy_keys(tables, request, documents)  # what the door had still before it was sealed with new ones
        await self._clear(tables, request, documents, before)
        await tables.tidy(documents, before=await passing.all())

    async def _withdraw(self, tables: PgErasure, request: ErasureRequested, documents: Sequence[UUID]) -> None:
        """By the door, as anybody would: so that it has its place in the order, and reaches every generation. Where events are readable it is said of each
        document, so that the log alone tells which were erased."""
        kept = await PgKeystore(self.storage.pool).readable_since(request.tenant) is not None
        said = await (tables.latest(request.tenant, documents) if kept else tables.unwithdrawn(request.tenant, documents))
        for some in _slices(list(said.items()), TOGETHER):
            await self.storage.log.append([await self._withdrawal(request, document, order) for document, order in some])
        while await tables.awaits_withdrawal(said):
            await asyncio.sleep(POLL_S)

    async def _withdrawal(self, request: ErasureRequested, document: UUID, order: Sequence[int]) -> Record:
        data = DocumentWithdrawn(tenant=request.tenant, document_id=str(document), reason=f"{REASON}{request.receipt_id}")
        event = f"erase/{request.receipt_id}/{document}/{'.'.join(map(str, order))}"
        return await submission(data, event, time=self.clock(), codec=self.storage.codec, document=document)

    async def _destroy_keys(self, tables: PgErasure, request: ErasureRequested, subjects: Iterable[UUID]) -> None:
        """Told before it is done: a start applies what was told."""
        keystore = PgKeystore(self.storage.pool)
        for keys in _slices(await keystore.current(request.tenant, list(subjects)), KEYS_TOGETHER):
            await tables.come_upon(request.receipt_id, "keys", keys)
            told = KeysDestroyed(receipt_id=request.receipt_id, tenant=request.tenant, keys=keys)
            fact = own_fact(told, content_id("event", "key.destroyed", *map(str, keys)), AUTHOR, self.clock, tenant=request.tenant)
            await self.storage.log.append([await self.storage.codec.encode(fact, CONTROL, str(request.receipt_id))])
            await keystore.destroy(request.tenant, keys)
            await overwrite_destroyed(self.storage.pool, self.storage.key_file)

    async def _clear(self, tables: PgErasure, request: ErasureRequested, documents: Sequence[UUID], before: datetime) -> None:
        """What cites the documents goes first: without them nobody would find it again."""
        traces = await tables.traces(request.tenant, documents, all_of_tenant=request.scope == "tenant")
        await self._destroy_keys(tables, request, [*traces.runs, *traces.feedback])
        await tables.forget(request.receipt_id, traces)
        bare = await PgKeystore(self.storage.pool).readable_since(request.tenant) is not None
        uploads = await self.storage.blobs.stored(f"uploads/{request.tenant}/")
        for some in _slices(documents, TOGETHER):
            keys = await blobs_of(self.storage.blobs, tables, request, some, uploads, before)
            await tables.come_upon(request.receipt_id, "blobs", [content_id("blob", key) for key in keys])
            await self.storage.blobs.delete(keys)
            await tables.sweep(request.receipt_id, request.tenant, some, before=before, readable=bare)

    async def _scrub(self, tables: PgErasure, request: ErasureRequested) -> None:
        """Rewrite tables on the embedded server. On an external server only vacuum them; the receipt names what remains."""
        if self.storage.key_file is None:
            await vacuum(self.storage.pool, TOUCHED)
            return
        scrubbed = await scrub(self.storage.pool)
        left = {f"{UNSCRUBBED}{table}": 1 for table in scrubbed.tables}
        await tables.note(request.receipt_id, {**left, WRITE_AHEAD: int(scrubbed.log)})

    async def _compact(self) -> None:
        """Words that were in these documents only go from the statistics when their counts are folded."""
        for generation in await PgGenerations(self.storage.pool).undropped():
            while await compact_lexical(self.storage.pool, generation.name):
                await asyncio.sleep(0)


def _slices(items: Sequence[T], most: int) -> Iterator[list[T]]:
    for start in range(0, len(items), most):
        yield list(items[start : start + most])
