"""Changes that cannot be read become dead letters, their bytes in a blob: the topic they came from is somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from schemas.errors import PermanentError
from schemas.events import EventBuried, Fact
from schemas.events.dead_letters import Place
from schemas.ids import content_id
from schemas.ports.engines import Blobs
from schemas.ports.log import EventLog
from schemas.records import StoredRecord
from schemas.sources import SourceSpec
from streams.codec import Codec
from streams.publisher import Publisher
from streams.stage import Statement


@dataclass(frozen=True, slots=True)
class Undertaker:
    spec: SourceSpec
    codec: Codec
    blobs: Blobs
    log: EventLog
    clock: Callable[[], datetime]

    async def bury(self, stored: StoredRecord, error: PermanentError) -> None:
        """The same record gives the same dead letter. Raises TransientError."""
        place = stored.position
        identity = content_id("unreadable", place.topic, place.partition, place.offset)
        event = EventBuried(
            stage=f"source {self.spec.name}",
            event_id=identity,
            tenant=self.spec.tenant,
            place=Place(topic=place.topic, partition=place.partition, offset=place.offset),
            code=error.code,
            detail=error.detail[:2000],
            remedy=error.remedy,
            attempts=1,
            record=await self.blobs.put(f"_buried/{identity}", stored.record.value or b""),
            producer_source=self.spec.ce_source,
        )
        cause: Fact[EventBuried] = Fact(id=identity, data=event, source=self.spec.ce_source, event_id=str(identity), time=None, tenant=self.spec.tenant)
        statement = Statement(cause, event, id_parts=("buried", "source", str(identity)))
        await self.log.append([await Publisher("source", None, self.codec, self.clock).record(statement)])
