"""What a source has to say, as records of topic `raw`: a producer like any other, which numbers its changes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from schemas.errors import MalformedEvent
from schemas.events import Content, DocumentReceived, DocumentWithdrawn, Fact
from schemas.ids import fingerprint, received_id, sha256_hex
from schemas.ports.engines import Blobs
from schemas.records import Record
from schemas.sources import Mark, Said, SourceSpec
from schemas.staging import staged_prefix
from streams.codec import Codec
from streams.sources.saying import Draft

INLINE_BYTES = 100_000
"""A longer text goes into the blob store, and the event names it."""
GONE = "gone from its source"
ITEM = "item"


@dataclass(frozen=True, slots=True)
class Delivery:
    """Makes records. The same saying gives the same event id and the same payload, whenever it is made."""

    spec: SourceSpec
    codec: Codec
    blobs: Blobs
    clock: Callable[[], datetime]

    async def present(self, said: Said, document: Draft) -> list[Record]:
        """The document, and the end of what its row was called before."""
        event_id = _event_id(said.external_id, said.mark, said.step, said.digest)
        received = DocumentReceived(
            tenant=self.spec.tenant,
            external_id=said.external_id,
            content=await self._content(document, event_id),
            filename=document.filename,
            media_type="text/markdown" if document.text is not None and document.filename is None else None,
            title=document.title,
            language=document.language,
            collection=self.spec.collection,
            tags=self.spec.tags,
            metadata=dict(document.metadata or {}),
        )
        return [await self._record(received, event_id, said.mark, said.step), *await self.ends(said)]

    async def ends(self, said: Said) -> list[Record]:
        """Of the documents that its row gave up."""
        return [await self.withdrawn(left.external_id, left.mark, left.step) for left in said.left]

    async def withdrawn(self, external_id: str, mark: Mark, step: int = 0) -> Record:
        withdrawn = DocumentWithdrawn(tenant=self.spec.tenant, external_id=external_id, reason=GONE)
        return await self._record(withdrawn, _event_id(external_id, mark, step, GONE), mark, step)

    async def received(self, received: DocumentReceived, mark: Mark) -> Record:
        """A document that is a file or an address."""
        assert received.external_id is not None, "a source names its documents"
        return await self._record(received, _event_id(received.external_id, mark, 0, ITEM), mark, 0)

    def staging(self, external_id: str, mark: Mark) -> str:
        """Where the bytes of a file or an address wait until the door has taken them in."""
        return self._staged(_event_id(external_id, mark, 0, ITEM))

    def _staged(self, event_id: str) -> str:
        return staged_prefix(self.spec.tenant, received_id(self.spec.tenant, self.spec.ce_source, event_id))

    async def _content(self, document: Draft, event_id: str) -> Content:
        try:
            payload = (document.text or "").encode() if document.base64 is None else base64.b64decode(document.base64, validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise MalformedEvent(f"the body of {document.external_id!r} cannot be read: {error}", code="MALFORMED_CHANGE") from error
        if len(payload) > INLINE_BYTES:
            stored = await self.blobs.put(self._staged(event_id) + sha256_hex(payload), payload)
            return Content(storage_key=stored.key)
        return Content(text=document.text) if document.base64 is None else Content(base64=document.base64)

    async def _record(self, data: DocumentReceived | DocumentWithdrawn, event_id: str, mark: Mark, step: int) -> Record:
        epoch, sequence = mark
        fact = Fact(
            id=received_id(self.spec.tenant, self.spec.ce_source, event_id),
            data=data,
            source=self.spec.ce_source,
            event_id=event_id,
            time=self.clock(),
            sequence=sequence,
            epoch=epoch,
            step=step,
        )
        return await self.codec.encode(fact, data.topic, data.external_id or event_id)


def _event_id(external_id: str, mark: Mark, step: int, digest: str) -> str:
    return f"{mark[0]}.{mark[1]}.{step}.{fingerprint(external_id, digest)}"
