"""Dead letters of unreadable changes.

The record is copied into a blob, since its topic is foreign and may expire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from schemas.errors import PermanentError
from schemas.events import Event, EventDeadLettered
from schemas.events.dead_letters import LogPosition
from schemas.ids import content_id
from schemas.ports.engines import BlobStore
from schemas.ports.log import EventLog
from schemas.records import StoredRecord
from schemas.sources import SourceSpec
from streams.codec import Codec
from streams.publisher import Publisher
from streams.stage import Emission


@dataclass(frozen=True, slots=True)
class ChangeDeadLetters:
    spec: SourceSpec
    codec: Codec
    blobs: BlobStore
    log: EventLog
    clock: Callable[[], datetime]

    async def publish(self, stored_record: StoredRecord, error: PermanentError) -> None:
        """Publish the dead letter of a record, always under the same event id. Raises
        TransientError.
        """
        position = stored_record.position
        # Derived from the position: a record that is read again gives the same dead letter.
        event_id = content_id("unreadable", position.topic, position.partition, position.offset)
        data = EventDeadLettered(
            stage=f"source {self.spec.name}",
            event_id=event_id,
            tenant=self.spec.tenant,
            position=LogPosition(
                topic=position.topic, partition=position.partition, offset=position.offset
            ),
            code=error.code,
            detail=error.detail[:2000],
            remedy=error.remedy,
            attempts=1,
            record=await self.blobs.put(
                f"_dead_letters/{event_id}", stored_record.record.value or b""
            ),
            producer_source=self.spec.ce_source,
        )
        cause: Event[EventDeadLettered] = Event(
            id=event_id,
            data=data,
            source=self.spec.ce_source,
            event_id=str(event_id),
            time=None,
            tenant=self.spec.tenant,
        )
        emission = Emission(cause, data, id_parts=("dead_lettered", "source", str(event_id)))
        await self.log.append(
            [await Publisher("source", None, self.codec, self.clock).build_record(emission)]
        )
