"""Documents on their way into topic `raw`, as any producer would send them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from schemas.events import DocumentAmended, DocumentReceived, DocumentWithdrawn, Event, Fact
from schemas.ids import received_id
from schemas.records import Record
from streams.codec import Codec

SOURCE = "anabranch/api"


async def submission(
    data: DocumentReceived | DocumentAmended | DocumentWithdrawn,
    event_id: str,
    *,
    source: str = SOURCE,
    time: datetime,
    codec: Codec,
    document: UUID | None = None,
) -> Record:
    """The record for `raw`; publishing it twice under the same event id is one event."""
    fact: Fact[Event] = Fact(id=received_id(data.tenant, source, event_id), data=data, source=source, event_id=event_id, time=time)
    key = data.external_id or (str(document) if document else event_id)
    return await codec.encode(fact, data.topic, key)
