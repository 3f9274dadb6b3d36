"""Measure the time from a document's append to the log until it is searchable."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from schemas.events import DocumentIndexed
from schemas.ids import make_received_id
from schemas.records import Record
from streams.topics import OUTCOMES

MAX_PENDING = 10_000
"""Documents waiting to be measured; the oldest are dropped."""
FetchReceivedTimes = Callable[[Sequence[UUID]], Awaitable[Mapping[UUID, datetime]]]


@dataclass(slots=True)
class IngestLatency:
    clock: Callable[[], datetime]
    observe_seconds: Callable[[float], None]
    pending: deque[tuple[UUID, datetime]] = field(default_factory=lambda: deque(maxlen=MAX_PENDING))

    def record_published(self, records: Iterable[Record]) -> None:
        for record in records:
            if (
                record.topic == OUTCOMES
                and record.headers.get("ce_type") == DocumentIndexed.event_type().encode()
            ):
                self._record_indexed(
                    DocumentIndexed.model_validate(json.loads(record.value or b"{}"))
                )

    def _record_indexed(self, outcome: DocumentIndexed) -> None:
        """Ignore unchanged documents: they were searchable before."""
        if outcome.code is None and outcome.tenant and outcome.source and outcome.event_id:
            self.pending.append(
                (make_received_id(outcome.tenant, outcome.source, outcome.event_id), self.clock())
            )

    async def measure(self, fetch_received_times: FetchReceivedTimes) -> None:
        """`fetch_received_times` maps event ids to the append times of their events."""
        batch = list(self.pending)
        if not batch:
            return
        received_times = await fetch_received_times([event_id for event_id, _ in batch])
        for event_id, searchable_at in batch:
            self.pending.popleft()
            if event_id in received_times:
                self.observe_seconds(
                    max(0.0, (searchable_at - received_times[event_id]).total_seconds())
                )
