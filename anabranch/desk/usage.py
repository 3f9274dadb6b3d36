"""Facts about questions, published beside the answers: never in their way, and counted where they are lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from schemas.errors import PermanentError, TransientError
from schemas.events import Event, QueryAnswered, QueryReceived
from schemas.ids import content_id
from schemas.ports.log import EventLog
from schemas.records import Record
from streams.codec import Codec
from streams.publisher import own_fact
from streams.topics import MAX_EVENT_BYTES, QUERIES

log = structlog.get_logger(__name__)
AUTHOR = "anabranch/api"


@dataclass(slots=True)
class UsageBuffer:
    """`offer` never waits. What is offered while the log takes what came before goes into it together. While the log is away the newest `most` facts are kept,
    older ones are lost; so is one that is too large for the log."""

    event_log: EventLog
    codec: Codec
    clock: Callable[[], datetime]
    lost: Callable[[int], None]
    most: int = 2_000
    group: int = 64
    pause_s: float = 1.0
    waiting: deque[Event] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, event: Event) -> None:
        self.waiting.append(event)
        while len(self.waiting) > self.most:
            self.waiting.popleft()
            self.lost(1)
        self.arrived.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while not self.waiting:
                self.arrived.clear()
                await self.arrived.wait()
            if not await self._sent():
                await asyncio.sleep(self.pause_s)

    async def flush(self) -> None:
        """One last try for what is left."""
        while self.waiting and await self._sent():
            continue
        if self.waiting:
            self.lost(len(self.waiting))

    async def _sent(self) -> bool:
        try:
            await self._send()
            return True
        except TransientError as error:
            log.warning("facts about questions wait for the log", code=error.code, waiting=len(self.waiting))
        except Exception:
            # Who stopped here would record no question any more.
            log.exception("facts about questions wait: the log does not take them", waiting=len(self.waiting))
        return False

    async def _send(self) -> None:
        """A group stays at the head of the queue until the log has it: what is sent twice after a cancelled try has the same ids."""
        group = [self.waiting[place] for place in range(min(self.group, len(self.waiting)))]
        found = await asyncio.gather(*map(self._record, group), return_exceptions=True)
        self._give_up([event for event, record in zip(group, found, strict=True) if record is None])
        records: list[Record] = []
        for record in found:
            if isinstance(record, BaseException):
                raise record
            if record is not None:
                records.append(record)
        await self.event_log.append(records)
        for event in group:
            if self.waiting and self.waiting[0] is event:
                self.waiting.popleft()

    async def _record(self, event: Event) -> Record | None:
        assert isinstance(event, QueryReceived | QueryAnswered)
        identity = content_id("usage", event.run_id, event.name)
        fact = own_fact(event, identity, AUTHOR, self.clock, tenant=event.tenant, correlation_id=str(event.run_id))
        try:
            record = await self.codec.encode(fact, QUERIES, str(event.run_id))
        except (PermanentError, ValueError) as error:
            log.warning("a fact about a question cannot be written", run=str(event.run_id), error=str(error))
            return None
        if len(record.value or b"") <= MAX_EVENT_BYTES:
            return record
        log.warning("a fact about a question is too large for the log", run=str(event.run_id), bytes=len(record.value or b""))
        return None

    def _give_up(self, unwritable: Sequence[Event]) -> None:
        """Once, however often the rest of their group is tried."""
        for event in unwritable:
            places = [place for place, one in enumerate(self.waiting) if one is event]
            if places:
                del self.waiting[places[0]]
                self.lost(1)
