"""How long documents take from the log's beginning to its end: noted as they become searchable, looked up a little later."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from schemas.events import DocumentIndexed
from schemas.ids import received_id
from schemas.records import Record
from streams.topics import OUTCOMES

MOST = 10_000
"""Arrivals that are remembered until they are looked up; the oldest are forgotten."""
ReceivedAt = Callable[[Sequence[UUID]], Awaitable[Mapping[UUID, datetime]]]


@dataclass(slots=True)
class Arrivals:
    clock: Callable[[], datetime]
    took: Callable[[float], None]
    noted: deque[tuple[UUID, datetime]] = field(default_factory=lambda: deque(maxlen=MOST))

    def note(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.topic == OUTCOMES and record.headers.get("ce_type") == DocumentIndexed.event_type().encode():
                self._note(DocumentIndexed.model_validate(json.loads(record.value or b"{}")))

    def _note(self, said: DocumentIndexed) -> None:
        """An unchanged document was searchable before."""
        if said.code is None and said.tenant and said.source and said.event_id:
            self.noted.append((received_id(said.tenant, said.source, said.event_id), self.clock()))

    async def measure(self, received_at: ReceivedAt) -> None:
        """`received_at` knows when the log took in the events of these ids."""
        noted = list(self.noted)
        if not noted:
            return
        begun = await received_at([event for event, _ in noted])
        for event, moment in noted:
            self.noted.popleft()
            if event in begun:
                self.took(max(0.0, (moment - begun[event]).total_seconds()))
