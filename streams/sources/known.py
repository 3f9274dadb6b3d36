"""Things that a source looks at by name, and what it knew of them when it looked last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from schemas.events import DocumentReceived
from schemas.ports.log import EventLog
from schemas.ports.sources import DeclaredSources, SourceStore
from schemas.sources import DeclaredSource, Mark
from streams.sources.delivery import Delivery

PREFIX = "item:"
STATUS = "status"
PAGE = 500


@dataclass(slots=True)
class KnownItems:
    """By external id. A lost memory is made good from the documents. Numbers are milliseconds, growing with each change of an item."""

    source: DeclaredSource
    store: SourceStore
    declared: DeclaredSources
    delivery: Delivery
    log: EventLog
    clock: Callable[[], datetime]
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    """The status that stands in the store, where it is ours."""

    async def recall(self) -> None:
        notes = await self.store.notes(self._name)
        self.items = {name.removeprefix(PREFIX): note for name, note in notes.items() if name.startswith(PREFIX) and note["epoch"] == self.source.epoch}
        after = ""
        while page := await self.declared.documents(self.source.spec.ce_source, after, PAGE):
            for external_id in page:
                self.items.setdefault(external_id, {"epoch": self.source.epoch, "sequence": 0, "live": True})
            after = page[-1]

    def live(self) -> set[str]:
        return {name for name, item in self.items.items() if item.get("live")}

    def next_mark(self, external_id: str) -> Mark:
        """For the next thing to be said of it."""
        before: int = self.items.get(external_id, {}).get("sequence", 0)
        return self.source.epoch, max(int(self.clock().timestamp() * 1000), before + 1)

    async def received(self, document: DocumentReceived, mark: Mark, note: Mapping[str, Any]) -> None:
        """Say it, then remember it: a crash between the two says it again, and the same content changes nothing."""
        assert document.external_id is not None
        await self.log.append([await self.delivery.received(document, mark)])
        await self.remember(document.external_id, {**note, "sequence": mark[1], "live": True})
        await self.store.note_change(self._name)

    async def withdrawn(self, external_id: str) -> None:
        mark = self.next_mark(external_id)
        await self.log.append([await self.delivery.withdrawn(external_id, mark)])
        await self.remember(external_id, {"sequence": mark[1], "live": False})
        await self.store.note_change(self._name)

    async def remember(self, external_id: str, note: Mapping[str, Any]) -> None:
        known = self.items.get(external_id, {})
        self.items[external_id] = {"sequence": known.get("sequence", 0), "live": known.get("live", False), **note, "epoch": self.source.epoch}
        await self.store.note(self._name, PREFIX + external_id, self.items[external_id])

    async def status(self, state: str, problems: Mapping[str, str]) -> None:
        """What could not be taken, by name: the first few, and how many there are."""
        note = {"state": state, "items": len(self.live()), "problems": dict(sorted(problems.items())[:5]), "problem_count": len(problems)}
        if note != self.told:
            await self.store.note(self._name, STATUS, note)
            self.told = note

    @property
    def _name(self) -> str:
        return self.source.spec.name
