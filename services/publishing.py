"""Publish events that no other event caused: decisions and requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from schemas.events import EventData, build_root_event
from schemas.ports.log import RecordAppender
from schemas.timestamps import utc_now
from schemas.topics import Record
from streams.codec import Codec


@dataclass(frozen=True, slots=True)
class EventPublisher:
    """Methods return once the log has acknowledged the event; they raise LogUnavailable."""

    log: RecordAppender
    codec: Codec
    clock: Callable[[], datetime] = utc_now
    fresh_id: Callable[[], UUID] = uuid4

    async def publish(
        self,
        data: EventData,
        source: str,
        key: str,
        event_id: UUID | None = None,
        tenant: str | None = None,
    ) -> int:
        """Publish the event on its topic and return its offset."""
        record = await self.encode(data, source, key, event_id, tenant)
        [position] = await self.log.append([record])
        return position.offset

    async def encode(
        self,
        data: EventData,
        source: str,
        key: str,
        event_id: UUID | None = None,
        tenant: str | None = None,
    ) -> Record:
        """Build the record of the event, for an append of several."""
        envelope = {"tenant": tenant} if tenant else {}
        event = build_root_event(data, event_id or self.fresh_id(), source, self.clock, **envelope)
        return await self.codec.encode(event, data.topic, key)
