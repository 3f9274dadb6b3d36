"""Erasing documents for good: withdrawn first, then their keys destroyed, then, when nothing of them is under way any more, every trace removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import structlog

from anabranch.composition.readers import readers
from anabranch.composition.storage import Storage
from processors import STAGES
from schemas.events import DocumentWithdrawn, ErasureCompleted, ErasureRequested, KeysDestroyed
from schemas.ids import content_id
from sql.builds import PgBuilds
from sql.compaction import compact_lexical
from sql.erasure import EVENTS, PgErasure
from sql.generations import PgGenerations
from sql.keystore import PgKeystore
from streams.keys import REMEMBERED_S
from streams.publisher import own_fact
from streams.submission import submission
from streams.topics import CONTROL, RAW_RETENTION_MS

log = structlog.get_logger(__name__)
AUTHOR = "anabranch/erase"
POLL_S = 0.2
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
    """Whose events are not sealed."""

    async def erase(self, request: ErasureRequested) -> ErasureCompleted:
        tables, tenant = PgErasure(self.storage.pool), request.tenant
        documents = await tables.documents(tenant, request.scope, request.subject)
        await tables.take_stock(request.receipt_id, documents)
        await self._withdraw(tables, request, documents)
        await self._destroy_keys(tables, request, documents)
        await asyncio.sleep(REMEMBERED_S + MARGIN_S)  # by then no process opens anything with them any more
        await self._settled()
        traces = await tables.traces(tenant, documents)
        await self._destroy_keys(tables, request, [*traces.runs, *traces.feedback])
        for some in _slices(documents, TOGETHER):
            await self._remove(tables, request, some)
        await tables.forget(request.receipt_id, traces)
        await self._compact()
        await tables.wipe()
        return await self._receipt(tables, request, len(documents))

    async def _withdraw(self, tables: PgErasure, request: ErasureRequested, documents: Sequence[UUID]) -> None:
        """By the door, as anybody would: so that it has its place in the order, and reaches every generation."""
        for document in await tables.unwithdrawn(request.tenant, documents):
            data = DocumentWithdrawn(tenant=request.tenant, document_id=str(document), reason=f"erasure {request.receipt_id}")
            event = f"erase/{request.receipt_id}/{document}"
            await self.storage.log.append([await submission(data, event, time=self.clock(), codec=self.storage.codec, document=document)])
        while await tables.unwithdrawn(request.tenant, documents):
            await asyncio.sleep(POLL_S)

    async def _destroy_keys(self, tables: PgErasure, request: ErasureRequested, subjects: Sequence[UUID]) -> None:
        """Told before it is done: a start applies what was told."""
        keystore = PgKeystore(self.storage.pool)
        for keys in _slices(await keystore.current(request.tenant, subjects), KEYS_TOGETHER):
            told = KeysDestroyed(receipt_id=request.receipt_id, tenant=request.tenant, keys=keys)
            fact = own_fact(told, content_id("event", "key.destroyed", *map(str, keys)), AUTHOR, self.clock, tenant=request.tenant)
            await self.storage.log.append([await self.storage.codec.encode(fact, CONTROL, str(request.receipt_id))])
            await keystore.destroy(request.tenant, keys)
            await tables.note(request.receipt_id, {"keys": len(keys)})

    async def _settled(self) -> None:
        """Until every reader has passed what was in its topic: then nothing that was opened before writes any more, and what was asked before is known.
        Stage control and this one wait for each other otherwise; a build that is paused opens nothing before it goes on."""
        paused = {name for name, build in (await PgBuilds(self.storage.pool).all()).items() if build.paused}
        found = readers(await PgGenerations(self.storage.pool).undropped(), STAGES)
        waited = [reader for reader in found if reader.topic != CONTROL and not (reader.silent and reader.generation.name in paused)]
        barriers = {topic: await self.storage.ends(topic) for topic in {reader.topic for reader in waited}}
        for reader in waited:
            log.debug("erasing waits for a stage to pass what is in its topic", stage=reader.stage.name, topic=reader.topic)
            while await self.storage.waiting(reader.group, reader.topic, barriers[reader.topic]):
                await asyncio.sleep(POLL_S)

    async def _remove(self, tables: PgErasure, request: ErasureRequested, documents: Sequence[UUID]) -> None:
        """Blobs before rows: the rows say which."""
        keys = [key for document in documents for key in await self.storage.blobs.listed(f"{request.tenant}/{document}/")]
        hashes = set(await tables.content_hashes(documents))
        keys += [key for key in await self.storage.blobs.listed(f"uploads/{request.tenant}/") if key.rpartition("/")[2] in hashes]
        keys += await tables.record_blobs(documents)
        await self.storage.blobs.delete(keys)
        await tables.note(request.receipt_id, {"blobs": len(keys)})
        await tables.sweep(request.receipt_id, request.tenant, documents)

    async def _compact(self) -> None:
        """Words that were in these documents only go from the statistics when their counts are folded."""
        for generation in await PgGenerations(self.storage.pool).undropped():
            while await compact_lexical(self.storage.pool, generation.name):
                await asyncio.sleep(0)

    async def _receipt(self, tables: PgErasure, request: ErasureRequested, documents: int) -> ErasureCompleted:
        now, readable = self.clock(), self.readable(request.tenant)
        gone = request.requested_at + timedelta(milliseconds=RAW_RETENTION_MS)
        remains = [f"topic raw, as its producers sent it, until {gone.isoformat()}", "topic outcomes: external ids, counts and reasons"]
        if readable:
            remains.append("topics accepted, ocr_done, chunked, entities, embedded and queries: this tenant keeps its events readable")
        removed = await tables.counts(request.receipt_id)
        events = removed.pop(EVENTS, 0)
        return ErasureCompleted(
            receipt_id=request.receipt_id,
            tenant=request.tenant,
            documents=documents,
            removed=removed,
            events=0 if readable else events,
            method="nothing" if readable else "keys destroyed",
            remains=remains,
            raw_until=gone,
            completed_at=now,
        )


def _slices(items: Sequence[T], most: int) -> Iterator[list[T]]:
    for start in range(0, len(items), most):
        yield list(items[start : start + most])
