"""Fold the events of `raw` to the current documents."""

from __future__ import annotations

from schemas.events import DocumentReceived, DocumentWithdrawn
from schemas.ports.log import EventLog
from streams.codec import Codec


async def read_current_documents(log: EventLog) -> set[str]:
    """Return the current documents by external id."""
    codec, external_ids = Codec(), set[str]()
    async for stored in log.read("raw"):
        match (await codec.decode(stored)).data:
            case DocumentReceived(external_id=str(name)):
                external_ids.add(name)
            case DocumentWithdrawn(external_id=str(name)):
                external_ids.discard(name)
    return external_ids
