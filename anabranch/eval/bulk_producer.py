"""Bulk ingestion as an external producer: publish to topic `raw`, read the results from topic
`outcomes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from schemas.errors import PermanentError
from schemas.events import Content, DocumentFailed, DocumentReceived
from schemas.ids import make_received_id, sha256_hex
from schemas.ports.engines import BlobStore
from schemas.ports.log import EventLog
from schemas.records import Record
from schemas.staging import upload_staging_prefix
from schemas.topics import OUTCOMES
from streams.codec import Codec
from streams.submission import build_raw_record

BULK_SOURCE = "anabranch/bulk"
BATCH_SIZE = 200
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class BulkDocument:
    id: str
    title: str | None
    text: str


@dataclass(slots=True)
class BulkProducer:
    """Producer of Markdown documents, whose ids become external ids."""

    log: EventLog
    blobs: BlobStore
    codec: Codec
    clock: Callable[[], datetime]
    inline_bytes: int
    check_worker: Callable[[], None]
    failures: dict[str, DocumentFailed] = field(default_factory=dict)

    async def ingest(self, documents: Sequence[BulkDocument]) -> None:
        """Publish the documents and wait until each has an outcome.

        `failures` then holds the failed ones by id.
        """
        next_offsets = {
            partition: next_offset
            for partition, (_, next_offset) in (
                await self.log.fetch_offset_bounds(OUTCOMES)
            ).items()
        }
        for first_index in range(0, len(documents), BATCH_SIZE):
            await self.log.append(
                [
                    await self._build_record(document)
                    for document in documents[first_index : first_index + BATCH_SIZE]
                ]
            )
        await self._wait_for_outcomes({document.id for document in documents}, next_offsets)

    async def _build_record(self, document: BulkDocument) -> Record:
        data = DocumentReceived(
            external_id=document.id,
            title=document.title,
            media_type="text/markdown",
            filename=f"{sha256_hex(document.id.encode())[:16]}.md",
            content=await self._build_content(document),
        )
        return await build_raw_record(
            data, document.id, source=BULK_SOURCE, time=self.clock(), codec=self.codec
        )

    async def _build_content(self, document: BulkDocument) -> Content:
        payload = document.text.encode()
        if len(payload) <= self.inline_bytes:
            return Content(text=document.text)
        key = upload_staging_prefix(
            "default", make_received_id("default", BULK_SOURCE, document.id)
        ) + sha256_hex(payload)
        return Content(
            storage_key=(await self.blobs.put(key, payload, media_type="text/markdown")).key
        )

    async def _wait_for_outcomes(self, pending_ids: set[str], next_offsets: dict[int, int]) -> None:
        while pending_ids:
            self.check_worker()
            async for record in self.log.read(OUTCOMES, next_offsets):
                next_offsets[record.position.partition] = record.position.offset + 1
                pending_ids -= set(self._collect_outcome(await self.codec.decode(record)))
            await asyncio.sleep(POLL_S)

    def _collect_outcome(self, event: object) -> Iterable[str]:
        data = getattr(event, "data", None)
        if getattr(data, "source", None) != BULK_SOURCE:
            return
        if isinstance(data, DocumentFailed) and data.event_id:
            self.failures[data.event_id] = data
        yield str(getattr(data, "event_id", ""))


def raise_if_all_failed(producer: BulkProducer, documents: Sequence[BulkDocument]) -> None:
    """Raises PermanentError with the first reason if every document failed."""
    if documents and len(producer.failures) == len(documents):
        first_failure = next(iter(producer.failures.values()))
        raise PermanentError(
            f"All {len(documents)} documents failed; the first: {first_failure.detail}",
            code=first_failure.code or "FAILED",
            remedy=first_failure.remedy or "",
        )
