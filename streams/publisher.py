"""New facts on their way into the log: ids, envelopes, topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.errors import LimitExceeded
from schemas.events import Event, Fact
from schemas.generations import Generation
from schemas.ids import content_id, derived_id
from schemas.records import Record
from streams.codec import Codec
from streams.stage import Statement
from streams.topics import MAX_EVENT_BYTES

Clock = Callable[[], datetime]


class Publisher:
    """Turns statements of one stage into records. The same statement gives the same id, whenever it is made."""

    def __init__(self, author: str, generation: Generation | None, codec: Codec, clock: Clock) -> None:
        self.author, self.generation, self.codec, self.clock = author, generation, codec, clock
        self.how = generation.how.get(author, "") if generation else ""

    async def records(self, statements: Sequence[Statement]) -> list[Record]:
        """Those that are sealed with their causes' keys need not wait for any; new keys are asked for together."""
        if all(statement.cause.key is not None for statement in statements):
            return [await self.record(statement) for statement in statements]
        return await asyncio.gather(*map(self.record, statements))

    async def record(self, statement: Statement) -> Record:
        """Raises LimitExceeded for what no log would take, before anything is handed to one."""
        cause, data = statement.cause, statement.data
        identity = content_id("event", *statement.id_parts) if statement.id_parts else derived_id(self.author, self.how, cause.id, statement.ordinal)
        fact = Fact(
            id=identity,
            data=data,
            source=f"anabranch/{self.author}",
            event_id=str(identity),
            time=self.clock(),
            tenant=getattr(data, "tenant", None) or cause.tenant,
            document_id=getattr(data, "document_id", None) or cause.document_id,
            how=self.how or None,
            causation_id=cause.id,
            correlation_id=cause.correlation_id or str(cause.id),
            traceparent=cause.traceparent,
            key=cause.key,
        )
        return _fitting(await self.codec.encode(fact, self.topic(data), str(fact.document_id or cause.id)), data)

    def topic(self, data: Event) -> str:
        return self.generation.topics.get(data.topic, data.topic) if self.generation else data.topic


def _fitting(record: Record, data: Event) -> Record:
    size = record.size
    if size > MAX_EVENT_BYTES:
        raise LimitExceeded(
            f"{data.event_type()} would have {size} bytes; an event has at most {MAX_EVENT_BYTES}",
            code="EVENT_TOO_LARGE",
            remedy="Send less metadata, or split the document.",
        )
    return record


def own_fact(data: Event, identity: UUID, source: str, clock: Clock, **envelope: Any) -> Fact[Any]:
    """A fact that no other one caused: a decision, a question."""
    return Fact(id=identity, data=data, source=source, event_id=str(identity), time=clock(), **envelope)
