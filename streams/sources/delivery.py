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
from streams.codec import Codec
from streams.sources.saying import Draft

INLINE_BYTES = 100_000
"""A longer text goes into the blob store, and the event names it."""
GONE = "gone from its source"


@dataclass(frozen=True, slots=True)
class Delivery:
    """Makes records. The same saying gives the same event id and the same payload, whenever it is made."""

    spec: SourceSpec
    codec: Codec
    blobs: Blobs
    clock: Callable[[], datetime]

    async def present(self, said: Said, document: Draft) -> list[Record]:
        """The document, and the end of what its row was called before."""
        received = DocumentReceived(
            tenant=self.spec.tenant,
            external_id=said.external_id,
            content=await self._content(document),
            filename=document.filename or ("document.md" if document.text is not None else None),
            title=document.title,
            language=document.language,
            collection=self.spec.collection,
            tags=self.spec.tags,
            metadata=dict(document.metadata or {}),
        )
        return [await self._record(received, said.external_id, said.mark, said.step, said.digest), *await self._ends(said)]

    async def absent(self, said: Said) -> list[Record]:
        return [await self.withdrawn(said.external_id, said.mark, said.step), *await self._ends(said)]

    async def withdrawn(self, external_id: str, mark: Mark, step: int = 0) -> Record:
        return await self._record(DocumentWithdrawn(tenant=self.spec.tenant, external_id=external_id, reason=GONE), external_id, mark, step, GONE)

    async def received(self, received: DocumentReceived, mark: Mark) -> Record:
        """A document that is a file or an address."""
        assert received.external_id is not None, "a source names its documents"
        return await self._record(received, received.external_id, mark, 0, fingerprint(received.model_dump(mode="json")))

    async def upload(self, payload: bytes) -> Content:
        stored = await self.blobs.put(f"uploads/{self.spec.tenant}/sources/{sha256_hex(payload)}", payload)
        return Content(storage_key=stored.key)

    async def _ends(self, said: Said) -> list[Record]:
        return [await self.withdrawn(name, said.mark, said.step) for name in said.left]

    async def _content(self, document: Draft) -> Content:
        try:
            payload = (document.text or "").encode() if document.base64 is None else base64.b64decode(document.base64, validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise MalformedEvent(f"the body of {document.external_id!r} cannot be read: {error}", code="MALFORMED_CHANGE") from error
        if len(payload) > INLINE_BYTES:
            return await self.upload(payload)
        return Content(text=document.text) if document.base64 is None else Content(base64=document.base64)

    async def _record(self, data: DocumentReceived | DocumentWithdrawn, external_id: str, mark: Mark, step: int, digest: str) -> Record:
        epoch, sequence = mark
        event_id = f"{epoch}.{sequence}.{step}.{fingerprint(external_id, digest)}"
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
        return await self.codec.encode(fact, data.topic, external_id)
