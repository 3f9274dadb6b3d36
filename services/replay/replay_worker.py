"""Run replays and redrives, which reprocess records at their own log positions.

Any number of workers may look for one; a lease lets one of them run it, and another continues after
a crash.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from schemas.batching import collect_evenly, split_evenly
from schemas.errors import AnabranchError, NotFound, PermanentError, TransientError
from schemas.events import DeadLetterClosed, DocumentSuperseded, Event
from schemas.ids import content_id, parse_uuid
from schemas.ports.ledger import ClaimStatus, OrderingPolicy
from schemas.topics import Record, StoredRecord
from services.background_tasks import repeat
from services.publishing import EventPublisher
from services.storage import Storage
from sql.operations.replays import LEASE_S, OpenDeadLetter, PgReplays, Replay, ReplayCounts
from streams.dead_letters import resolve_tenant
from streams.runner import StageRunner
from streams.stage_consumer import format_group_name

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
    for batch in split_evenly(pending_items, runner.stage.batch_size):
        # The runner leaves the single retries to its caller, here one after the other.
        for timed_out_item in await runner.react(batch):
            await runner.react([timed_out_item])
    # A producer that already got an outcome must not get "superseded": the newer revision came
    # after that.
    for item in pending_items:
        if has_ended(item.stored_record):
            item.emissions = [
                one for one in item.emissions if not isinstance(one.data, DocumentSuperseded)
            ]
    for item in items:
        if item.dead_letter is not None:
            # Another event id than the first dead letter's, which consumers would drop as a repeat.
            data = item.dead_letter.data.model_copy(update={"redriven": replay_id})
            item.dead_letter = replace(item.dead_letter, data=data)
    if items_to_finish := [item for item in items if item.pending_event or item.dead_letter]:
        await runner.finish(items_to_finish)
    return [
        replace(result, outcome="dead_lettered") if item.dead_letter else result
        for item, result in zip(items, results, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """None admits everything. Times are append times."""

    tenant: str
    documents: frozenset[UUID] | None
    since: datetime | None
    until: datetime | None

    @classmethod
    def from_criteria(
        cls, criteria: Mapping[str, Any], tenant: str, collection_documents: frozenset[UUID] | None
    ) -> RecordFilter:
        requested_documents = frozenset(map(UUID, criteria.get("document_ids") or ())) or None
        selections = [
            selection
            for selection in (requested_documents, collection_documents)
            if selection is not None
        ]
        return cls(
            tenant,
            frozenset.intersection(*selections) if selections else None,
            _parse_time(criteria.get("since")),
            _parse_time(criteria.get("until")),
        )

    def matches(self, stored: StoredRecord) -> bool:
        if resolve_tenant(stored) not in (None, self.tenant):
            return False
        if (self.since is not None and stored.appended_at < self.since) or (
            self.until is not None and stored.appended_at >= self.until
        ):
            return False
        if self.documents is None:
            return True
        header = stored.record.headers.get("ce_document", b"")
        return parse_uuid(header.decode(errors="replace")) in self.documents


def _parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


log = structlog.get_logger(__name__)
CE_SOURCE = "anabranch/replay"
POLL_S = 0.5
BATCH_SIZE = 32
ListRunners = Callable[[], dict[tuple[str, str | None], StageRunner]]
"""Maps (stage, generation or None for shared stages) to the runners of this process."""


@dataclass(slots=True)
class ReplayWorker:
    storage: Storage
    list_runners: ListRunners
    clock: Callable[[], datetime]
    owner: UUID

    async def run(self) -> None:
        """Run until cancelled. Retries while the database or log is unavailable."""
        await repeat(self.run_once, POLL_S, "replay_poll_postponed")

    async def run_once(self) -> bool:
        """Run one replay; returns whether there was one."""
        replays = self.storage.replays
        replay = await replays.acquire(self.owner, list(self.list_runners()))
        if replay is None:
            return False
        runner = self.list_runners().get((replay.stage, replay.generation))
        # The consumer has stopped since `acquire`; the lease expires, and another worker continues.
        if runner is None:
            return False
        # If that fails, the lease expires, and another worker continues after the last batch.
        renewals = repeat(
            partial(replays.renew_lease, self.owner, replay.id),
            LEASE_S / 3,
            "replay_lease_not_renewed",
            replay=str(replay.id),
        )
        lease_renewal = asyncio.create_task(renewals)
        try:
            is_finished = await (
                self._redrive(replays, replay, runner)
                if replay.kind == "redrive"
                else self._replay(replays, replay, runner)
            )
        # The lease expires, and a worker continues after the last recorded batch.
        except TransientError:
            raise
        except AnabranchError as error:
            await replays.finish(self.owner, replay.id, f"{error.code}: {error.detail}")
        # A defect ends this replay only, not the worker.
        except Exception as error:
            log.exception("replay_crashed", replay=str(replay.id))
            await replays.finish(self.owner, replay.id, f"BUG: {type(error).__name__}: {error}")
        else:
            if is_finished:
                await replays.finish(self.owner, replay.id, None)
        finally:
            lease_renewal.cancel()
        return True

    async def _redrive(self, replays: PgReplays, replay: Replay, runner: StageRunner) -> bool:
        tally = replay.counts
        # `read` counts processed ids, so a resumed redrive continues after them.
        pending_ids = list(replay.dead_letter_ids or ())[tally.read :]
        for batch_ids in split_evenly(pending_ids, _limit_batch(replay)):
            candidates = await replays.list_open_dead_letters(
                replay.tenant, {"event_ids": batch_ids, "stage": replay.stage}
            )
            dead_letters = [
                dead_letter
                for dead_letter in candidates
                if dead_letter.generation == replay.selection.get("failed_in")
            ]
            records = [
                stored
                for dead_letter in dead_letters
                if (stored := await self._fetch_dead_letter_record(dead_letter)) is not None
            ]
            results = await self._reprocess(replays, replay, runner, records, {})
            # Before the progress is recorded: a crash in between repeats the batch.
            await self._close_processed(dead_letters, results)
            _add_to_tally(tally, results, len(batch_ids))
            tally.dead_lettered += len(dead_letters) - len(records)
            # Paused, cancelled, or taken over by another worker.
            if not await replays.record_progress(self.owner, replay.id, {}, tally):
                return False
            await self._throttle(replay, len(results))
        return True

    async def _replay(self, replays: PgReplays, replay: Replay, runner: StageRunner) -> bool:
        offsets, tally = {**replay.positions}, replay.counts
        # A paused replay may resume after retention has passed its position.
        await self._check_retained(replay)
        # Resolved now, so that a resumed replay sees the collection as it is then.
        record_filter = await load_record_filter(replays, replay.tenant, replay.selection)
        # Producers have the outcomes of events below these offsets, see `reprocess`.
        acknowledged = await self.storage.log.fetch_committed_offsets(
            format_group_name(replay.stage, replay.generation), replay.topic or ""
        )
        assert replay.topic is not None
        last = {partition: following - 1 for partition, following in replay.positions.items()}
        # From the replay's current position.
        records = self.storage.log.read(replay.topic, replay.starts, replay.ends, resume_after=last)
        async for batch in collect_evenly(records, _limit_batch(replay)):
            matching = [stored for stored in batch if record_filter.matches(stored)]
            results = await self._reprocess(replays, replay, runner, matching, acknowledged)
            # Of all records read, not only of the matching ones: the next batch begins behind them.
            offsets |= {stored.position.partition: stored.position.offset + 1 for stored in batch}
            _add_to_tally(tally, results, len(batch))
            if not await replays.record_progress(self.owner, replay.id, offsets, tally):
                return False
            await self._throttle(replay, len(results))
        return True

    async def _check_retained(self, replay: Replay) -> None:
        """Raise PermanentError if retention has passed the next offset, such as during a pause."""
        expired = await self.storage.log.fetch_expired_offsets(replay.topic or "")
        for partition, start in ({**replay.starts, **replay.positions}).items():
            first = min(expired.get(partition, 0), replay.ends.get(partition, 0))
            if start < first:
                raise PermanentError(
                    f"Topic {replay.topic}, partition {partition}, no longer holds offsets "
                    f"{start} to {first - 1}.",
                    code="NOT_RETAINED",
                    remedy="Start another replay of the retained offsets.",
                )

    async def _reprocess(
        self,
        replays: PgReplays,
        replay: Replay,
        runner: StageRunner,
        records: Sequence[StoredRecord],
        acknowledged: Mapping[int, int],
    ) -> list[ReprocessResult]:
        """`acknowledged` has the stage's committed offset by partition."""
        if not records:
            return []

        # Without this the inbox would drop the events as repeats.
        async def reopen(events: Sequence[Event[Any]]) -> None:
            if runner.stage.ordering_policy == OrderingPolicy.ONCE_PER_ID:
                await replays.reopen_ingress_events(
                    {event.id: event.payload_sha256 for event in events}
                )
            else:
                generation = "" if runner.stage.serves_all_generations else replay.generation or ""
                await replays.delete_claims(
                    generation, runner.stage.name, [event.id for event in events]
                )

        return await reprocess(
            runner,
            records,
            reopen,
            replay.id,
            has_ended=lambda stored: (
                stored.position.offset < acknowledged.get(stored.position.partition, 0)
            ),
        )

    async def _fetch_dead_letter_record(self, dead_letter: OpenDeadLetter) -> StoredRecord | None:
        """Read the record from the log, else from the copy stored with the dead letter.

        None if neither exists.
        """
        stored = await self.storage.log.read_at(dead_letter.position)
        if stored is not None:
            return stored
        if (
            dead_letter.record_key is None
            or dead_letter.headers_key is None
            or dead_letter.appended_at is None
        ):
            log.warning(
                "dead_letter_record_expired",
                event_id=str(dead_letter.event_id),
                topic=dead_letter.position.topic,
                offset=dead_letter.position.offset,
            )
            return None
        try:
            headers = json.loads(await self.storage.blobs.get(dead_letter.headers_key))
            value = await self.storage.blobs.get(dead_letter.record_key)
        except NotFound as error:
            log.warning(
                "dead_letter_copy_missing", event_id=str(dead_letter.event_id), detail=error.detail
            )
            return None
        header_bytes = {name: base64.b64decode(text) for name, text in headers.items()}
        return StoredRecord(
            Record(dead_letter.position.topic, None, value, header_bytes),
            dead_letter.position,
            dead_letter.appended_at,
        )

    async def _close_processed(
        self, dead_letters: Sequence[OpenDeadLetter], results: Sequence[ReprocessResult]
    ) -> None:
        """Close dead letters that were processed. Those that failed again stay open with the new
        reason.
        """
        outcomes = {result.stored_record.position: result.outcome for result in results}
        processed = [
            dead_letter
            for dead_letter in dead_letters
            if outcomes.get(dead_letter.position) in ("replayed", "superseded")
        ]
        await close_dead_letters(
            self.storage,
            processed,
            lambda dead_letter: (
                "superseded" if outcomes[dead_letter.position] == "superseded" else "redriven"
            ),
            "",
            self.clock,
        )

    async def _throttle(self, replay: Replay, count: int) -> None:
        if replay.per_second:
            await asyncio.sleep(count / replay.per_second)


async def close_dead_letters(
    storage: Storage,
    dead_letters: Sequence[OpenDeadLetter],
    resolve_outcome: Callable[[OpenDeadLetter], str],
    reason: str,
    clock: Callable[[], datetime],
) -> None:
    """Publish `dead_letter.closed` for each."""
    publisher, now, records = EventPublisher(storage.log, storage.codec, clock), clock(), []
    for dead_letter in dead_letters:
        closure = DeadLetterClosed.model_validate(
            {
                "stage": dead_letter.stage,
                "generation": dead_letter.generation,
                "event_id": dead_letter.event_id,
                "tenant": dead_letter.tenant,
            }
            | {"resolution": resolve_outcome(dead_letter), "reason": reason, "closed_at": now}
        )
        # With the time, since a dead letter may be opened and closed more than once.
        identity = content_id(
            "event",
            "dead_letter.closed",
            dead_letter.event_id,
            dead_letter.stage,
            dead_letter.generation or "",
            now.isoformat(),
        )
        records.append(
            await publisher.encode(
                closure, CE_SOURCE, str(dead_letter.event_id), identity, dead_letter.tenant
            )
        )
    if records:
        await storage.log.append(records)


def _limit_batch(replay: Replay) -> int:
    """Limit a slow replay to one second's records, so that it can be paused soon."""
    return min(BATCH_SIZE, max(1, int(replay.per_second))) if replay.per_second else BATCH_SIZE


async def load_record_filter(
    replays: PgReplays, tenant: str, criteria: Mapping[str, Any]
) -> RecordFilter:
    collection = criteria.get("collection")
    return RecordFilter.from_criteria(
        criteria,
        tenant,
        None if collection is None else await replays.list_collection_documents(tenant, collection),
    )


def _add_to_tally(tally: ReplayCounts, results: Sequence[ReprocessResult], read_count: int) -> None:
    tally.read += read_count
    counts = Counter(result.outcome for result in results)
    tally.replayed += counts["replayed"]
    tally.superseded += counts["superseded"]
    tally.dead_lettered += counts["dead_lettered"]
