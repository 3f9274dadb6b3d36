"""Records of topic `raw` for the events of a source: a producer like any other, with numbered
changes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from schemas.errors import MalformedEvent
from schemas.events import Content, DocumentReceived, DocumentWithdrawn, Event
from schemas.ids import fingerprint, make_received_id, sha256_hex, upload_staging_prefix
from schemas.ports.engines import BlobStore
from schemas.sources import EmittedState, SequenceMark, SourceSpec
from schemas.topics import Record
from streams.codec import Codec
from streams.sources.emitter import SourceDocument

MAX_INLINE_BYTES = 100_000
"""Longer content goes into the blob store, and the event holds its storage key."""
WITHDRAWAL_REASON = "gone from its source"
ITEM_DIGEST = "item"


@dataclass(frozen=True, slots=True)
class RawProducer:
    """Builds records. The same state of a row always gives the same event id and payload."""

    spec: SourceSpec
    codec: Codec
    blobs: BlobStore
    clock: Callable[[], datetime]
    inline_bytes: int = MAX_INLINE_BYTES
    """Limit of content inside an event, `INGEST__INLINE_BYTES` if that is lower."""

    async def build_document_records(
        self, emitted_state: EmittedState, document: SourceDocument
    ) -> list[Record]:
        """Build the record of a document and withdrawals for ids that its row has given up."""
        event_id = _format_event_id(
            emitted_state.external_id, emitted_state.mark, emitted_state.step, emitted_state.digest
        )
        data = DocumentReceived(
            tenant=self.spec.tenant,
            external_id=emitted_state.external_id,
            content=await self._prepare_content(document, event_id),
            filename=document.filename,
            media_type="text/markdown"
            if document.text is not None and document.filename is None
            else None,
            title=document.title,
            language=document.language,
            collection=self.spec.collection,
            tags=self.spec.tags,
            metadata=dict(document.metadata or {}),
        )
        return [
            await self._build_record(data, event_id, emitted_state.mark, emitted_state.step),
            *await self.build_release_records(emitted_state),
        ]

    async def build_release_records(self, emitted_state: EmittedState) -> list[Record]:
        """Build withdrawals for ids that the row has given up."""
        return [
            await self.build_withdrawal_record(
                released_id.external_id, released_id.mark, released_id.step
            )
            for released_id in emitted_state.released_ids
        ]

    async def build_withdrawal_record(
        self, external_id: str, mark: SequenceMark, step: int = 0
    ) -> Record:
        data = DocumentWithdrawn(
            tenant=self.spec.tenant, external_id=external_id, reason=WITHDRAWAL_REASON
        )
        return await self._build_record(
            data, _format_event_id(external_id, mark, step, WITHDRAWAL_REASON), mark, step
        )

    async def build_received_record(self, data: DocumentReceived, mark: SequenceMark) -> Record:
        """Build the record of a file or an address."""
        assert data.external_id is not None, "a source names its documents"
        return await self._build_record(
            data, _format_event_id(data.external_id, mark, 0, ITEM_DIGEST), mark, 0
        )

    def get_staging_prefix(self, external_id: str, mark: SequenceMark) -> str:
        """Return the blob prefix where the bytes of a file or an address wait for ingress."""
        return self._build_staging_prefix(_format_event_id(external_id, mark, 0, ITEM_DIGEST))

    async def stage_item(self, external_id: str, mark: SequenceMark, payload: bytes) -> Content:
        """Stage the bytes of a file.

        Not inline: `raw` is not encrypted, and a record whose event was superseded would keep them
        after an erasure.
        """
        return await self._stage_payload(
            _format_event_id(external_id, mark, 0, ITEM_DIGEST), payload
        )

    async def _stage_payload(self, event_id: str, payload: bytes) -> Content:
        # A fixed key: a retry writes the same blob again.
        key = self._build_staging_prefix(event_id) + sha256_hex(payload)
        return Content(storage_key=(await self.blobs.put(key, payload)).key)

    def _build_staging_prefix(self, event_id: str) -> str:
        return upload_staging_prefix(
            self.spec.tenant, make_received_id(self.spec.tenant, self.spec.ce_source, event_id)
        )

    async def _prepare_content(self, document: SourceDocument, event_id: str) -> Content:
        try:
            payload = (
                (document.text or "").encode()
                if document.base64 is None
                else base64.b64decode(document.base64, validate=True)
            )
        except (binascii.Error, UnicodeEncodeError) as error:
            raise MalformedEvent(
                f"Invalid body of {document.external_id!r}: {error}.", code="MALFORMED_CHANGE"
            ) from error
        if len(payload) > self.inline_bytes:
            return await self._stage_payload(event_id, payload)
        return (
            Content(text=document.text)
            if document.base64 is None
            else Content(base64=document.base64)
        )

    async def _build_record(
        self,
        data: DocumentReceived | DocumentWithdrawn,
        event_id: str,
        mark: SequenceMark,
        step: int,
    ) -> Record:
        epoch, sequence = mark
        event = Event(
            id=make_received_id(self.spec.tenant, self.spec.ce_source, event_id),
            data=data,
            source=self.spec.ce_source,
            event_id=event_id,
            time=self.clock(),
            sequence=sequence,
            epoch=epoch,
            step=step,
        )
        return await self.codec.encode(event, data.topic, data.external_id or event_id)


def _format_event_id(external_id: str, mark: SequenceMark, step: int, digest: str) -> str:
    # The digest too: after a loss of state the same mark may carry another content.
    return f"{mark[0]}.{mark[1]}.{step}.{fingerprint(external_id, digest)}"
