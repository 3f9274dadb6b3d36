"""Records for topic `raw`, as any producer would send them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from schemas.events import DocumentAmended, DocumentReceived, DocumentWithdrawn, Event, EventData
from schemas.ids import make_received_id
from schemas.records import Record
from streams.codec import Codec

API_SOURCE = "anabranch/api"


async def build_raw_record(
    data: DocumentReceived | DocumentAmended | DocumentWithdrawn,
    event_id: str,
    *,
    source: str = API_SOURCE,
    time: datetime,
    codec: Codec,
    document_id: UUID | None = None,
) -> Record:
    """Build a record for `raw`. Records with the same source and event id count as one event."""
    event: Event[EventData] = Event(
        id=make_received_id(data.tenant, source, event_id),
        data=data,
        source=source,
        event_id=event_id,
        time=time,
    )
    key = data.external_id or (str(document_id) if document_id else event_id)
    return await codec.encode(event, data.topic, key)
