"""State of the items (files, addresses) of a source as of its last check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from schemas.events import DocumentReceived
from schemas.ports.log import EventLog
from schemas.ports.sources import DeclaredSources, SourceStore
from schemas.sources import DeclaredSource, SequenceMark
from streams.sources.raw_producer import RawProducer

ITEM_PREFIX = "item:"
STATUS_KEY = "status"
PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class ItemChange:
    """A new state of an item, and the event to publish about it."""

    external_id: str
    item_fields: Mapping[str, Any] = field(default_factory=dict)
    document: DocumentReceived | None = None
    """None for a withdrawal, and if the content is the same."""
    mark: SequenceMark | None = None
    """Set with `document`."""
    is_withdrawal: bool = False


@dataclass(slots=True)
class ItemStates:
    """Item states by external id; lost states are restored from the source's documents.

    Sequence numbers are milliseconds since the epoch, increased at least by one with each change of
    an item.
    """

    source: DeclaredSource
    store: SourceStore
    declared_sources: DeclaredSources
    raw_producer: RawProducer
    log: EventLog
    clock: Callable[[], datetime]
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    """Ids of the items that were not withdrawn. Do not change it."""
    stored_status: dict[str, Any] = field(default_factory=dict)
    """The status last stored by this process."""

    async def load(self) -> None:
        notes = await self.store.fetch_notes(self._name)
        self.items = {
            # After a reset the numbers restart: notes of an earlier epoch would order new events
            # wrongly.
            name.removeprefix(ITEM_PREFIX): note
            for name, note in notes.items()
            if name.startswith(ITEM_PREFIX) and note["epoch"] == self.source.epoch
        }
        after = ""
        while page := await self.declared_sources.fetch_external_ids(
            self.source.spec.ce_source, after, PAGE_SIZE
        ):
            for external_id in page:
                # Its note is lost or of an earlier epoch: without a stamp the item is read again.
                self.items.setdefault(
                    external_id, {"epoch": self.source.epoch, "sequence": 0, "live": True}
                )
            after = page[-1]
        self.live = {name for name, item in self.items.items() if item.get("live")}

    def compute_next_mark(self, external_id: str) -> SequenceMark:
        """Return the mark of the item's next event."""
        last_sequence: int = self.items.get(external_id, {}).get("sequence", 0)
        # `max`: the clock may go back, and two changes may fall into one millisecond.
        return self.source.epoch, max(int(self.clock().timestamp() * 1000), last_sequence + 1)

    async def publish(self, changes: Sequence[ItemChange]) -> None:
        """Publish the documents and withdrawals of these changes, and store their states."""
        records, notes = [], {}
        for change in changes:
            previous_note = self.items.get(change.external_id, {})
            note: dict[str, Any] = {
                "sequence": previous_note.get("sequence", 0),
                "live": previous_note.get("live", False),
                **change.item_fields,
                "epoch": self.source.epoch,
            }
            if change.is_withdrawal:
                mark = self.compute_next_mark(change.external_id)
                records.append(
                    await self.raw_producer.build_withdrawal_record(change.external_id, mark)
                )
                note |= {"sequence": mark[1], "live": False}
            elif change.document is not None:
                assert change.mark is not None, "a document has a mark"
                records.append(
                    await self.raw_producer.build_received_record(change.document, change.mark)
                )
                note |= {"sequence": change.mark[1], "live": True}
            notes[change.external_id] = note
        # In this order: after a crash in between it is published again, and equal content changes
        # nothing.
        if records:
            await self.log.append(records)
        self.items |= notes
        for external_id, note in notes.items():
            (self.live.add if note["live"] else self.live.discard)(external_id)
        await self.store.set_notes(
            self._name, {ITEM_PREFIX + external_id: note for external_id, note in notes.items()}
        )
        if records:
            await self.store.record_change_time(self._name)

    async def withdraw(self, external_ids: Iterable[str]) -> None:
        remaining = iter(external_ids)
        while page := [
            ItemChange(name, is_withdrawal=True) for name in islice(remaining, PAGE_SIZE)
        ]:
            await self.publish(page)

    async def store_status(
        self, state: str, problems: Mapping[str, str], *, n_skipped: int = 0
    ) -> None:
        """Store the status with the first problems by name and their total, if it changed."""
        note = {
            "state": state,
            "items": len(self.live),
            "problems": dict(sorted(problems.items())[:5]),
            "problem_count": len(problems),
            **({"skipped": n_skipped} if n_skipped else {}),
        }
        # A scan every two seconds would otherwise write a row each time.
        if note != self.stored_status:
            await self.store.set_note(self._name, STATUS_KEY, note)
            self.stored_status = note

    @property
    def _name(self) -> str:
        return self.source.spec.name
