"""The runner: what turns a stage's two functions into exactly-once effect, on every log.

    decode → first transaction (claim, rows) → react → publish → second transaction (reacted or buried) → acknowledge

Acknowledging is the partition's business (`streams.partition_sink`); everything else is here. A crash between any two steps redelivers the
event: its rows are there already, the memo answers, the same ids are published again, and readers drop them by their claims.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog

from schemas.errors import AnabranchError, DataErased, DuplicateEventId, EngineUnavailable, FatalError, NewerVersion, PermanentError, TransientError
from schemas.events import Event, EventDeadLettered
from schemas.ports.ledger import ATTEMPTS_RECORDED_BY_CLAIM, ClaimResult, ClaimStatus, Ledger, ProjectedEvent
from schemas.ports.log import EventLog
from schemas.ports.stage_ports import StagePorts
from schemas.records import Record, StoredRecord
from streams.codec import Codec
from streams.dead_letters import DeadLetter, build_dead_letter_emissions
from streams.instrumentation import Instrumentation
from streams.publisher import Publisher
from streams.retry import RetryBudget
from streams.stage import Emission, PendingEvent, Stage
from streams.topics import CONTROL

log = structlog.get_logger(__name__)
T = TypeVar("T")

MAX_CONSECUTIVE_BUGS = 20
MAX_ABANDONED_ATTEMPTS = 3
"""Attempts at an event that no worker lived to end, after which it is dead-lettered."""
_SUSPECT_LOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""Suspects are reacted to one at a time in a process: if it dies again, only the culprit is charged."""
RELEASE_TIMEOUT_S = 5.0
MAX_TIMEOUTS = 2
"""Tries of an event whose reaction does not end in time, the one in a group counted: no event holds its place for longer than so many deadlines."""


@dataclass(slots=True, eq=False)
class WorkItem:
    """One record on its way through the stage."""

    stored_record: StoredRecord
    pending_event: PendingEvent | None = None
    emissions: list[Emission] = field(default_factory=list)
    dead_letter: DeadLetter | None = None
    attempts: int = 0
    abandoned_attempts: int = 0
    """Attempts that were noted before, and that no worker has ended."""
    has_recorded_attempt: bool = False
    """Whether its claim noted an attempt, which ends when it is finished or released."""
    timeouts: int = 0
    """Tries that did not end in time."""
    is_delegated: bool = False
    """To another program."""

    @property
    def is_suspect(self) -> bool:
        """Whether it may have ended workers. Fewer unended attempts say little: whatever waits in a worker that is killed has one."""
        return self.abandoned_attempts >= ATTEMPTS_RECORDED_BY_CLAIM


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waiting times in seconds between tries: doubling from `first` to `most`."""

    first_s: float = 0.2
    max_s: float = 15.0

    def compute_delay_s(self, attempt: int) -> float:
        return min(self.max_s, self.first_s * 2.0 ** min(attempt, 16))


class StageRunner:
    """One stage of one generation. `claim`, `react` and `finish` are called by partitions, many at a time. They raise FatalError only."""

    def __init__(
        self,
        stage: Stage,
        ledger: Ledger,
        event_log: EventLog,
        ports: StagePorts,
        publisher: Publisher,
        codec: Codec,
        instrumentation: Instrumentation,
        *,
        backoff: Backoff | None = None,
        max_abandoned_attempts: int = MAX_ABANDONED_ATTEMPTS,
    ) -> None:
        self.stage, self.ledger, self.event_log, self.ports, self.publisher, self.codec = stage, ledger, event_log, ports, publisher, codec
        self.instrumentation = instrumentation
        self.backoff, self.max_abandoned_attempts = backoff or Backoff(), max_abandoned_attempts
        self.consecutive_bugs = 0
        self.successes = 0
        self._engine_outages: dict[object, EngineUnavailable] = {}
        self._recorded_attempts: Counter[UUID] = Counter()
        """Attempts of this process that have not ended, by event. A copy of an event that comes meanwhile must not take them for lost."""

    @property
    def engine_outage(self) -> EngineUnavailable | None:
        """What an engine said that some reaction waits for, the longest-waiting one's."""
        return next(iter(self._engine_outages.values()), None)

    async def claim(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        """Decode and run the first transaction. What is owed a reaction has `counted`, or is `left`, what cannot be processed has `burial`, the rest is done.
        Ends before the first record that is newer than this program; raises NewerVersion where that is the first of all."""
        items = await self._decode_readable(records)
        projected_items = [(item, projected) for item in items if (projected := self._project(item)) is not None]
        await self._claim_projected(projected_items)
        return items

    async def react(self, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Run the reaction of a group and note its statements or its burial on each. A failing group is halved until the culprit stands alone.
        Returns those of which nothing is noted, since their group did not end in time: each is to be tried alone, and none need wait for another."""
        suspects = [item for item in items if item.is_suspect]
        if suspects and len(items) > 1:
            batches = [list(batch) for _, batch in groupby(items, lambda item: item if item.is_suspect else None)]
            return [timed_out_item for batch in batches for timed_out_item in await self.react(batch)]
        async with _SUSPECT_LOCKS.setdefault(asyncio.get_running_loop(), asyncio.Lock()) if suspects else nullcontext():
            error = await self._react_with_retries(items)
        if error is None:
            return []
        if len(items) == 1:
            self._dead_letter(items[0], error)
            return []
        if isinstance(error, TimeoutError):
            return list(items)
        middle = len(items) // 2
        return [*await self.react(items[:middle]), *await self.react(items[middle:])]

    async def finish(self, items: Sequence[WorkItem]) -> None:
        """Publish what was stated, wait until the log has it, then run the second transaction."""
        await self._publish(items)
        dead_letters = [item.dead_letter for item in items if item.dead_letter is not None]
        reacted_ids = [item.pending_event.event.id for item in items if item.pending_event is not None and item.dead_letter is None]
        dead_letter_data: list[EventDeadLettered] = [dead_letter.data for dead_letter in dead_letters]
        if self.stage.react is not None or dead_letter_data:
            await self._retry_outages(lambda: self.ledger.complete(self.stage.name, reacted_ids, dead_letter_data))
        self._forget_attempts(item.pending_event.event.id for item in items if item.pending_event is not None and item.has_recorded_attempt)
        for item in items:
            self.instrumentation.count_finished(self.stage.name, item.dead_letter.data.code if item.dead_letter else None)

    async def _publish(self, items: Sequence[WorkItem]) -> None:
        """Facts that are too large, or that the log refuses for good, are found by halving; the event that they follow from is buried."""
        try:
            records = await self._build_records(items)
            if records:
                await self._retry_outages(lambda: self.event_log.append(records))
        except PermanentError as error:
            if len(items) > 1:
                middle = len(items) // 2
                await self._publish(items[:middle])
                await self._publish(items[middle:])
                return
            if items[0].dead_letter is not None:
                raise
            self._dead_letter(items[0], error)
            await self._publish(items)

    async def _build_records(self, items: Sequence[WorkItem]) -> list[Record]:
        if all(item.pending_event is not None and item.pending_event.event.key is not None for item in items):
            return [record for item in items for record in await self._build_item_records(item)]
        return [record for item_records in await asyncio.gather(*map(self._build_item_records, items)) for record in item_records]

    async def _build_item_records(self, item: WorkItem) -> list[Record]:
        dead_letter, emissions = item.dead_letter, list(item.emissions)
        if dead_letter is not None:
            emissions += await self._retry_outages(lambda: build_dead_letter_emissions(dead_letter, self.stage, self.ports))
        try:
            return await self._retry_outages(lambda: self.publisher.build_records(emissions))
        except DataErased:
            return []

    async def release(self, items: Iterable[WorkItem]) -> None:
        """Take back the attempts that claims noted at what is not finished here."""
        await self._end_attempts([item.pending_event.event.id for item in items if item.pending_event is not None and item.has_recorded_attempt])

    async def prune(self, topic: str, partition: int, below: int) -> None:
        """A copy of a decision must stay a repeat for ever: it would come after all that was decided since."""
        if self.stage.ordering_policy != "door" and self.stage.topic != CONTROL:
            await self._retry_outages(lambda: self.ledger.prune(self.stage.name, topic, partition, below))

    async def _claim_projected(self, projected_items: Sequence[tuple[WorkItem, ProjectedEvent]]) -> None:
        """Rows that the tables refuse are found by halving, like reactions that fail."""
        recorded_attempts = {projected.event.id: self._recorded_attempts[projected.event.id] for _, projected in projected_items}
        try:
            claim_results = await self._retry_outages(
                lambda: self.ledger.claim(self.stage.name, self.stage.ordering_policy, [projected for _, projected in projected_items])
            )
        except FatalError:
            raise
        except Exception as error:
            if len(projected_items) == 1:
                self._dead_letter(projected_items[0][0], error)
                return
            middle = len(projected_items) // 2
            await self._claim_projected(projected_items[:middle])
            await self._claim_projected(projected_items[middle:])
        else:
            if projected_items and self.stage.react is None:
                self.consecutive_bugs = 0
            for (item, projected), claim_result in zip(projected_items, claim_results, strict=True):
                event_id = projected.event.id
                own_attempts = max(recorded_attempts[event_id], self._recorded_attempts[event_id])
                self._apply_claim(item, projected.event, replace(claim_result, abandoned_attempts=max(0, claim_result.abandoned_attempts - own_attempts)))
                item.has_recorded_attempt = item.pending_event is not None and claim_result.abandoned_attempts < ATTEMPTS_RECORDED_BY_CLAIM
                if item.has_recorded_attempt:
                    self._recorded_attempts[event_id] += 1
            await self.release([item for item, _ in projected_items if item.is_delegated])

    async def _decode_readable(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        """Those before the first that is newer than this program, which stops it where it comes first."""
        items: list[WorkItem] = []
        await self._retry_outages(lambda: self.codec.prefetch_keys(records))
        for stored_record in records:
            try:
                items.append(await self._decode(stored_record))
            except NewerVersion:
                if items:
                    break
                raise
        return items

    async def _decode(self, stored_record: StoredRecord) -> WorkItem:
        """What was erased is passed over: it has neither a fact nor a burial."""
        item = WorkItem(stored_record)
        try:
            item.pending_event = PendingEvent(await self._retry_outages(lambda: self.codec.decode(stored_record)), ClaimStatus.PENDING)
        except DataErased as error:
            log.info("passed over", stage=self.stage.name, topic=stored_record.position.topic, offset=stored_record.position.offset, detail=error.detail)
        except FatalError:
            raise
        except Exception as error:
            self._dead_letter(item, error)
        return item

    def _project(self, item: WorkItem) -> ProjectedEvent | None:
        if item.pending_event is None:
            return None
        event = item.pending_event.event
        try:
            return ProjectedEvent(event, tuple(self.stage.project(event)))
        except Exception as error:
            self._dead_letter(item, error)
        return None

    def _apply_claim(self, item: WorkItem, event: Event[Any], claim_result: ClaimResult) -> None:
        if claim_result.status is ClaimStatus.DUPLICATE:
            self._dead_letter(item, DuplicateEventId(f"event {event.event_id!r} of source {event.source!r} came before with another payload"))
        elif claim_result.status is ClaimStatus.DONE or self.stage.react is None:
            item.pending_event = None
        else:
            item.pending_event = PendingEvent(
                event, claim_result.status, claim_result.visibility_change, claim_result.is_unchanged, claim_result.revived_revision, claim_result.amended_title
            )
            item.is_delegated = self.stage.delegate_if(item.pending_event)
            item.abandoned_attempts = claim_result.abandoned_attempts
            if claim_result.abandoned_attempts >= self.max_abandoned_attempts and not item.is_delegated:
                item.attempts = claim_result.abandoned_attempts
                self._dead_letter(item, _build_worker_lost_error(claim_result.abandoned_attempts))

    async def _react_with_retries(self, items: Sequence[WorkItem]) -> Exception | None:
        """Statements on success; the error that will not go away otherwise."""
        retry_budget = RetryBudget()
        try:
            while True:
                try:
                    await self._react_once(items)
                except TimeoutError as error:
                    if self._count_timeout(items):
                        return error
                except TransientError as error:
                    self.instrumentation.count_retry(self.stage.name, error.code)
                    if isinstance(error, EngineUnavailable):
                        self._engine_outages[retry_budget] = error
                    if retry_budget.record_failure(error, self.successes):
                        return error
                    await asyncio.sleep(self.backoff.compute_delay_s(retry_budget.failures))
                else:
                    self.successes += 1
                    self.consecutive_bugs = 0
                    return None
        except FatalError:
            raise
        except Exception as error:
            return error
        finally:
            self._engine_outages.pop(retry_budget, None)

    async def _react_once(self, items: Sequence[WorkItem]) -> None:
        assert self.stage.react is not None
        pending_events = [item.pending_event for item in items if item.pending_event is not None]
        for item in items:
            item.attempts += 1
        # Other attempts were noted by their claims, so that a revision does not wait here while a later one goes on.
        suspects = [item.pending_event.event.id for item in items if item.pending_event is not None and item.is_suspect]
        self._recorded_attempts.update(suspects)
        try:
            if suspects:
                await self._retry_outages(lambda: self.ledger.record_attempt(self.stage.name, suspects))
            async with asyncio.timeout(self.stage.deadline_s):
                emissions = await self.stage.react(pending_events, self.ports)
        finally:
            await self._end_attempts(suspects)
        emissions_by_cause: dict[Any, list[Emission]] = {}
        for emission in emissions:
            emissions_by_cause.setdefault(emission.cause.id, []).append(emission)
        for item in items:
            item.emissions = emissions_by_cause.get(item.pending_event.event.id, []) if item.pending_event else []

    async def _end_attempts(self, event_ids: Sequence[UUID]) -> None:
        """End an attempt at each event, also where it was cancelled. Closing a partition does not wait for a lost database: the attempt counts as lost."""
        self._forget_attempts(event_ids)
        if event_ids:
            with suppress(TransientError, TimeoutError):
                async with asyncio.timeout(RELEASE_TIMEOUT_S):
                    await self.ledger.withdraw_attempt(self.stage.name, event_ids)

    def _forget_attempts(self, event_ids: Iterable[UUID]) -> None:
        for event_id in event_ids:
            self._recorded_attempts[event_id] -= 1
            if self._recorded_attempts[event_id] <= 0:
                del self._recorded_attempts[event_id]

    def _count_timeout(self, items: Sequence[WorkItem]) -> bool:
        """Whether it is over, alone or together: the next try might take as long, and others wait for it."""
        self.instrumentation.count_retry(self.stage.name, "TIMEOUT")
        for item in items:
            item.timeouts += 1
        return len(items) > 1 or items[0].timeouts >= MAX_TIMEOUTS

    def _dead_letter(self, item: WorkItem, error: Exception) -> None:
        is_expected = isinstance(error, AnabranchError | TimeoutError)
        if not is_expected:
            self._count_bug(error)
        event = item.pending_event.event if item.pending_event else None
        item.emissions = []
        item.dead_letter = DeadLetter.from_error(item.stored_record, event, self.stage, self._get_generation_name(), error, max(1, item.attempts))
        log.warning(
            "event buried", stage=self.stage.name, fact=str(event.id) if event else None, code=item.dead_letter.data.code, detail=item.dead_letter.data.detail
        )

    def _count_bug(self, error: Exception) -> None:
        self.consecutive_bugs += 1
        log.error("a bug: the event is buried with its traceback", stage=self.stage.name, error="".join(traceback.format_exception(error)))
        if self.consecutive_bugs >= MAX_CONSECUTIVE_BUGS:
            raise FatalError(
                f"stage {self.stage.name}: {MAX_CONSECUTIVE_BUGS} events in a row ended in a bug; the last one: {error!r}", code="TOO_MANY_BUGS"
            ) from error

    def _get_generation_name(self) -> str | None:
        return self.publisher.generation.name if self.publisher.generation and not self.stage.serves_all_generations else None

    async def _retry_outages(self, call: Callable[[], Awaitable[T]]) -> T:
        """A lost Postgres or log is waited for; nobody knows whether the lost call was committed, and calling it again is right in either case."""
        attempt = 0
        while True:
            try:
                return await call()
            except TransientError as error:
                attempt += 1
                self.instrumentation.count_retry(self.stage.name, error.code)
                log.warning("waiting", stage=self.stage.name, code=error.code, detail=error.detail, attempt=attempt)
                await asyncio.sleep(self.backoff.compute_delay_s(attempt))


def _build_worker_lost_error(attempts: int) -> PermanentError:
    return PermanentError(
        f"{attempts} workers were killed or expelled while they processed this event, and none ended its attempt",
        code="WORKER_LOST",
        remedy="Look at the workers' logs for what ended them (memory, a hung engine); then redrive the event, or send the document in smaller files.",
    )
