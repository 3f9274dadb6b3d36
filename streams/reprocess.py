"""Reprocess records at their own log positions, through the stage's runner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from schemas.errors import PermanentError
from schemas.events import DocumentSuperseded, Event
from schemas.ports.ledger import ClaimStatus
from schemas.records import StoredRecord
from streams.runner import StageRunner

ReopenInbox = Callable[[Sequence[Event[Any]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ReprocessResult:
    """The outcome of one record: `replayed`, `superseded` or `dead_lettered`."""

    stored_record: StoredRecord
    outcome: str


async def reprocess(
    runner: StageRunner,
    records: Sequence[StoredRecord],
    reopen_inbox: ReopenInbox,
    replay_id: UUID,
    *,
    has_ended: Callable[[StoredRecord], bool],
) -> list[ReprocessResult]:
    """Claim records again, run their reactions and publish under the same event ids as before.

    `reopen_inbox` marks the events as not done. Their original order still decides, so an old
    revision never replaces a newer one. Raises TransientError, FatalError, and NewerVersion, before
    any change, if a record is of a newer version than this program.
    """
    events = []
    for stored_record in records:
        # An unreadable record has no claim to reopen; the runner dead-letters it again.
        with suppress(PermanentError):
            events.append(await runner.codec.decode(stored_record))
    # Before the claim, which would report the events as done.
    await reopen_inbox(events)
    items = await runner.claim(records)
    pending_items = [
        item for item in items if item.pending_event is not None and item.dead_letter is None
    ]
    results = [
        ReprocessResult(
            item.stored_record,
            "superseded"
            if item.pending_event and item.pending_event.status is ClaimStatus.SUPERSEDED
            else "replayed",
        )
        for item in items
    ]
    batch_size = runner.stage.batch_size
    for start in range(0, len(pending_items), batch_size):
        batch = pending_items[start : start + batch_size]
        # The runner leaves the single retries to its caller, here one after the other.
        for timed_out_item in await runner.react(batch):
            await runner.react([timed_out_item])
    # A producer that already got an outcome must not get "superseded": the newer revision came
    # after that.
    for item in pending_items:
        if has_ended(item.stored_record):
            item.emissions = [
                emission
                for emission in item.emissions
                if not isinstance(emission.data, DocumentSuperseded)
            ]
    items_to_finish = [
        item for item in items if item.pending_event is not None or item.dead_letter is not None
    ]
    for item in items_to_finish:
        if item.dead_letter is not None:
            # Another event id than the first dead letter's, which consumers would drop as a repeat.
            data = item.dead_letter.data.model_copy(update={"redriven": replay_id})
            item.dead_letter = replace(item.dead_letter, data=data)
    if items_to_finish:
        await runner.finish(items_to_finish)
    return [
        replace(result, outcome="dead_lettered") if item.dead_letter else result
        for item, result in zip(items, results, strict=True)
    ]
