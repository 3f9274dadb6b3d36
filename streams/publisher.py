"""Conversion of emissions and of producers' submissions into records: ids, envelopes, topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.errors import LimitExceeded
from schemas.events import DocumentAmended, DocumentReceived, DocumentWithdrawn, Event, EventData
from schemas.generations import Generation
from schemas.ids import content_id, make_derived_id, make_received_id
from schemas.topics import MAX_EVENT_BYTES, Record
from streams.codec import Codec
from streams.stage import Emission

Clock = Callable[[], datetime]


class Publisher:
    """Builds the records of one stage. The same emission always gets the same event id."""

    def __init__(
        self, producer_name: str, generation: Generation | None, codec: Codec, clock: Clock
    ) -> None:
        self.producer_name = producer_name
        self.generation = generation
        self.codec = codec
        self.clock = clock
        self.pipeline_fingerprint = generation.how.get(producer_name, "") if generation else ""

    async def build_records(self, emissions: Sequence[Emission]) -> list[Record]:
        return [await self.build_record(emission) for emission in emissions]

    async def build_record(self, emission: Emission) -> Record:
        """Build one record. Raises LimitExceeded if it is larger than any log accepts."""
        return await self.encode(self.build_event(emission))

    def build_event(self, emission: Emission) -> Event[Any]:
        cause, data = emission.cause, emission.data
        # Derived, never random: after a crash the same emission must get the same id.
        event_id = (
            content_id("event", *emission.id_parts)
            if emission.id_parts
            else make_derived_id(
                self.producer_name, self.pipeline_fingerprint, cause.id, emission.ordinal
            )
        )
        return Event(
            id=event_id,
            data=data,
            source=f"anabranch/{self.producer_name}",
            event_id=str(event_id),
            time=self.clock(),
            # The payload's own values win: the cause may be a decision, which has neither.
            tenant=getattr(data, "tenant", None) or cause.tenant,
            document_id=getattr(data, "document_id", None) or cause.document_id,
            pipeline_fingerprint=self.pipeline_fingerprint or None,
            causation_id=cause.id,
            correlation_id=cause.correlation_id or str(cause.id),
            traceparent=cause.traceparent,
            key=cause.key,
        )

    async def encode(self, event: Event[Any]) -> Record:
        """Encode an event for its topic. Raises LimitExceeded if no log accepts its size."""
        record = await self.codec.encode(
            event, self.resolve_topic(event.data), str(event.document_id or event.causation_id)
        )
        if record.size_bytes > MAX_EVENT_BYTES:
            raise LimitExceeded(
                f"The event {event.data.event_type()} has {record.size_bytes} bytes; "
                f"{MAX_EVENT_BYTES} are allowed.",
                code="EVENT_TOO_LARGE",
                remedy="Send less metadata, or split the document.",
            )
        return record

    def resolve_topic(self, data: EventData) -> str:
        return self.generation.topics.get(data.topic, data.topic) if self.generation else data.topic


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
    # Changes that name a document alike share a partition, which keeps their order.
    key = data.external_id or (str(document_id) if document_id else event_id)
    return await codec.encode(event, data.topic, key)
