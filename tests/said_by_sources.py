"""What stands in `raw` after what sources have said, in the order in which they said it."""

from __future__ import annotations

from schemas.events import DocumentReceived, DocumentWithdrawn
from schemas.ports.log import EventLog
from streams.codec import Codec


async def documents_there(log: EventLog) -> set[str]:
    """By external id."""
    codec, there = Codec(), set[str]()
    async for stored in log.read("raw"):
        match (await codec.decode(stored)).data:
            case DocumentReceived(external_id=str(name)):
                there.add(name)
            case DocumentWithdrawn(external_id=str(name)):
                there.discard(name)
    return there
