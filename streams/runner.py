"""The stage runner: exactly-once effect from a stage's `project` and `react`, on every log.

    decode → first transaction (claim, rows) → react → publish
    → second transaction (done or dead letter) → acknowledge

`streams.partition_sink` acknowledges; all other steps are here. After a crash between any two steps
the event is redelivered: its rows exist already, the memo returns the engines' results, the same
event ids are published again, and the inbox of each consumer drops them.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, asdict, dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog

from schemas.errors import (
    AnabranchError,
    DataErased,
    DuplicateEventId,
    EngineUnavailable,
    FatalError,
    NewerVersion,
    PermanentError,
    TransientError,
)
from schemas.events import Event
from schemas.ports.ledger import (
    ATTEMPTS_RECORDED_BY_CLAIM,
    ChainedDocument,
    ClaimResult,
    ClaimStatus,
    Ledger,
    OrderingPolicy,
    ProjectedEvent,
)
from schemas.ports.log import RecordAppender
from schemas.ports.stage_ports import StagePorts
from schemas.topics import CONTROL, Position, Record, StoredRecord
from streams.chained_records import ChainedRecords
from streams.codec import Codec
from streams.dead_letters import DeadLetter, build_dead_letter_emissions
from streams.publisher import Publisher
from streams.retry import (
    AttemptLimits,
    Backoff,
    OpenAttempts,
    RetryBudget,
    retry_outages,
    worker_lost_error,
)
from streams.stage import Emission, Instrumentation, PendingEvent, Stage

log = structlog.get_logger(__name__)
T = TypeVar("T")

# One bug is a poison event; this many in a row mean that the program itself is broken.
MAX_CONSECUTIVE_BUGS = 20
# One suspect at a time per process: if the process dies again, only the culprit is charged.
_SUSPECT_LOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
MAX_TIMEOUTS = 2
"""Time-outs of one event, in a batch or alone: it never holds a slot for longer than this many
deadlines.
"""


@dataclass(slots=True, eq=False)
class WorkItem:
    """One record on its way through the stage."""

    stored_record: StoredRecord
    pending_event: PendingEvent | None = None
    emissions: list[Emission] = field(default_factory=list)
    dead_letter: DeadLetter | None = None
    attempts: int = 0
    abandoned_attempts: int = 0
    """Attempts recorded earlier that no worker has ended."""
    has_recorded_attempt: bool = False
    """True if its claim recorded an attempt, which `finish` or `release` ends."""
    timeouts: int = 0
    is_delegated: bool = False
    """True if another program reacts to it."""
    owed_records: Sequence[Record] = ()
    """Records to publish in place of a reaction: the chain of the event was committed before."""
    delivery: int = 1
    chained: ChainedDocument | None = None
    """The document as `streams.stage_chain` has processed it, to be committed at once."""

    @property
    def is_suspect(self) -> bool:
        """Return whether it may have killed workers."""
        # Fewer abandoned attempts prove nothing: every event that waits in a killed worker has one.
        return self.abandoned_attempts >= ATTEMPTS_RECORDED_BY_CLAIM


@dataclass(eq=False)
class StageRunner:
    """Runs one stage of one generation.

    Partitions call `claim`, `react` and `finish` concurrently. All three retry outages until they
    are over and raise only FatalError, `claim` also NewerVersion.
    """

    stage: Stage
    ledger: Ledger
    event_log: RecordAppender
    ports: StagePorts
    publisher: Publisher
    codec: Codec
    instrumentation: Instrumentation
    _: KW_ONLY
    backoff: Backoff = field(default_factory=Backoff)
    limits: AttemptLimits = field(default_factory=AttemptLimits)
    chained_records: ChainedRecords | None = None
    """Recognizes records that a chain has applied, on a log outside of the tables' database."""
    consecutive_bugs: int = field(default=0, init=False)
    successes: int = field(default=0, init=False)
    _engine_outages: dict[object, EngineUnavailable] = field(default_factory=dict, init=False)
    _open_attempts: OpenAttempts = field(init=False)

    def __post_init__(self) -> None:
        self._open_attempts = OpenAttempts(self.stage.name, self.ledger)

    @property
    def engine_outage(self) -> EngineUnavailable | None:
        """The error of the engine that a reaction has waited for the longest, or None."""
        return next(iter(self._engine_outages.values()), None)

    async def claim(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        """Decode records and run the first transaction.

        Items with `pending_event` need a reaction (by another program if `is_delegated`), items
        with `dead_letter` failed, all others are done. Returns fewer items than records if one of
        them is of a newer version than this program; raises NewerVersion if that is the first.
        """
        items = await self._decode_readable(records)
        projected_items = []
        for item in items:
            if item.pending_event is not None:
                event = item.pending_event.event
                try:
                    # `tuple` runs a generator to its end here, inside the `try`.
                    projected = ProjectedEvent(event, tuple(self.stage.project(event)))
                    projected_items.append((item, projected))
                except Exception as error:
                    self._dead_letter(item, error)
        await self._claim_projected(projected_items)
        return items

    async def react(self, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Run the reaction of a batch and set `emissions` or `dead_letter` of each item.

        A failing batch is halved until the culprit is alone. Returns the items of a batch that
        timed out: react to each of them alone, concurrently.
        """
        items = [item for item in items if not item.owed_records]
        if not items:
            return []
        # Each suspect reacts alone: if it kills the process again, no other event is charged.
        suspects = [item for item in items if item.is_suspect]
        if suspects and len(items) > 1:
            batches = [
                list(batch)
                for _, batch in groupby(items, lambda item: item if item.is_suspect else None)
            ]
            return [
                timed_out_item for batch in batches for timed_out_item in await self.react(batch)
            ]
        async with (
            _SUSPECT_LOCKS.setdefault(asyncio.get_running_loop(), asyncio.Lock())
            if suspects
            else nullcontext()
        ):
            error = await self._react_with_retries(items)
        if error is None:
            return []
        if len(items) == 1:
            self._dead_letter(items[0], error)
            return []
        # A slow batch is not halved: retrying its items at once costs one deadline, not log2(n).
        if isinstance(error, TimeoutError):
            return list(items)
        # Repeated reactions are cheap: the memo has the results of the engines that answered.
        middle = len(items) // 2
        return [*await self.react(items[:middle]), *await self.react(items[middle:])]

    async def chain_stages(self, items: Sequence[WorkItem]) -> None:
        """Run the stages behind this one in memory, after `react` and before `finish`.

        This class chains none; `streams.stage_chain` does.
        """

    async def finish(self, items: Sequence[WorkItem]) -> None:
        """Publish all emissions, wait for the acknowledgement, then run the second transaction."""
        # Publish before marking: a crash in between repeats the same event ids, which consumers
        # drop.
        await self._publish(items)
        dead_letters = [item.dead_letter.data for item in items if item.dead_letter is not None]
        reacted_ids = _list_event_ids(item for item in items if item.dead_letter is None)
        # Claims of stages without a reaction are final after the first transaction.
        if self.stage.react is not None or dead_letters:
            await self._retry_outages(
                lambda: self.ledger.complete(self.stage.name, reacted_ids, dead_letters)
            )
        self._open_attempts.forget(
            _list_event_ids(item for item in items if item.has_recorded_attempt)
        )
        for item in items:
            self.instrumentation.count_finished(
                self.stage.name, item.dead_letter.data.code if item.dead_letter else None
            )

    async def _publish(self, items: Sequence[WorkItem]) -> None:
        """Publish all emissions; dead-letter items whose emissions are too large or rejected by the
        log.
        """
        try:
            # Together, so that all new keys are requested at once.
            records_by_item = await asyncio.gather(*map(self._build_item_records, items))
            records = [record for records in records_by_item for record in records]
            if records:
                await self._retry_outages(lambda: self.event_log.append(records))
        except PermanentError as error:
            if len(items) > 1:  # find the culprit by halving
                middle = len(items) // 2
                await self._publish(items[:middle])
                await self._publish(items[middle:])
                return
            # The dead letter itself was rejected; dead-lettering it again would not end.
            if items[0].dead_letter is not None:
                raise
            self._dead_letter(items[0], error)
            await self._publish(items)

    async def _build_item_records(self, item: WorkItem) -> list[Record]:
        if item.owed_records:
            return list(item.owed_records)
        dead_letter, emissions = item.dead_letter, list(item.emissions)
        if dead_letter is not None:
            emissions += await self._retry_outages(
                lambda: build_dead_letter_emissions(dead_letter, self.stage, self.ports)
            )
        try:
            return await self._retry_outages(lambda: self.publisher.build_records(emissions))
        except DataErased:  # the document was erased during its reaction: publish nothing about it
            return []

    async def release(self, items: Iterable[WorkItem]) -> None:
        """End the attempts that claims recorded for unfinished items."""
        await self._open_attempts.withdraw(
            _list_event_ids(item for item in items if item.has_recorded_attempt)
        )

    async def prune(self, topic: str, partition: int, below: int) -> None:
        """Delete inbox entries below an offset that will not be read again."""
        # Not for ingress and `control`: a late duplicate would be applied after newer events and
        # decisions.
        if self.stage.ordering_policy != OrderingPolicy.ONCE_PER_ID and self.stage.topic != CONTROL:
            await self._retry_outages(
                lambda: self.ledger.prune(self.stage.name, topic, partition, below)
            )

    async def _claim_projected(
        self, projected_items: Sequence[tuple[WorkItem, ProjectedEvent]]
    ) -> None:
        # Snapshot before the call: attempts may end while the transaction runs.
        recorded_attempts = {
            projected.event.id: self._open_attempts.count(projected.event.id)
            for _, projected in projected_items
        }
        try:
            claim_results = await self._retry_outages(
                lambda: self.ledger.claim(
                    self.stage.name,
                    self.stage.ordering_policy,
                    [projected for _, projected in projected_items],
                )
            )
        except FatalError:
            raise
        except Exception as error:
            # The tables reject a value of this row, so a retry cannot help.
            if len(projected_items) == 1:
                self._dead_letter(projected_items[0][0], error)
                return
            # Find the row that the tables reject by halving.
            middle = len(projected_items) // 2
            await self._claim_projected(projected_items[:middle])
            await self._claim_projected(projected_items[middle:])
        else:
            # A stage without a reaction never reaches the reset after a successful reaction.
            if projected_items and self.stage.react is None:
                self.consecutive_bugs = 0
            for (item, projected), claim_result in zip(projected_items, claim_results, strict=True):
                event_id = projected.event.id
                others = self._open_attempts.subtract_own(
                    claim_result, event_id, recorded_attempts[event_id]
                )
                self._apply_claim(item, projected.event, others)
                item.has_recorded_attempt = (
                    item.pending_event is not None
                    and claim_result.abandoned_attempts < ATTEMPTS_RECORDED_BY_CLAIM
                )
                if item.has_recorded_attempt:
                    self._open_attempts.add([event_id])
            # This process will never react to them; an open attempt would count as abandoned.
            await self.release([item for item, _ in projected_items if item.is_delegated])

    async def _decode_readable(self, records: Sequence[StoredRecord]) -> list[WorkItem]:
        """Decode records up to the first of a newer version; raise NewerVersion if it is the first
        of all.
        """
        items: list[WorkItem] = []
        applied: Collection[Position] = ()
        if (chained_records := self.chained_records) is not None:
            applied = await self._retry_outages(lambda: chained_records.find_applied(records))
        # One query for the whole batch, instead of one for each record.
        await self._retry_outages(
            lambda: self.codec.prefetch_keys(
                [record for record in records if record.position not in applied]
            )
        )
        for stored_record in records:
            item, position = WorkItem(stored_record), stored_record.position
            if position in applied:
                # Without `pending_event` and `dead_letter` the sink only acknowledges the record.
                items.append(item)
                continue
            try:
                event = await self._retry_outages(partial(self.codec.decode, stored_record))
                item.pending_event = PendingEvent(event, ClaimStatus.PENDING)
            except DataErased as error:
                # Only acknowledged, too.
                log.info(
                    "event_skipped",
                    reason="erased",
                    stage=self.stage.name,
                    detail=error.detail,
                    **asdict(position),
                )
            except NewerVersion:
                # Acknowledgements are in order: nothing behind an unreadable record may be claimed.
                if items:
                    break
                raise
            except FatalError:
                raise
            except Exception as error:
                self._dead_letter(item, error)
            items.append(item)
        return items

    def _apply_claim(self, item: WorkItem, event: Event[Any], claim_result: ClaimResult) -> None:
        if claim_result.status is ClaimStatus.DUPLICATE:
            self._dead_letter(
                item,
                DuplicateEventId(
                    f"Event {event.event_id!r} of source {event.source!r} was received before "
                    "with another payload."
                ),
            )
        # Without `pending_event` the sink only acknowledges the record.
        elif claim_result.status is ClaimStatus.DONE or self.stage.react is None:
            item.pending_event = None
        else:
            item.pending_event = PendingEvent.from_claim(event, claim_result)
            item.is_delegated = self.stage.delegate_if(item.pending_event)
            item.owed_records, item.delivery = claim_result.owed_records, claim_result.delivery
            item.abandoned_attempts = claim_result.abandoned_attempts
            if (
                claim_result.abandoned_attempts >= self.limits.abandoned
                # Only the program that reacts to a delegated event may dead-letter it.
                and not item.is_delegated
                and not item.owed_records
            ):
                item.attempts = claim_result.abandoned_attempts
                self._dead_letter(item, worker_lost_error(item.attempts))

    async def _react_with_retries(self, items: Sequence[WorkItem]) -> Exception | None:
        """Run the reaction until it succeeds (return None) or retries are exhausted (return the
        error).
        """
        retry_budget = RetryBudget(self.limits)
        try:
            while True:
                try:
                    await self._react_once(items)
                except TimeoutError as error:
                    self.instrumentation.count_retry(self.stage.name, "TIMEOUT")
                    for item in items:
                        item.timeouts += 1
                    # A batch at once, since its next attempt might take as long.
                    if len(items) > 1 or items[0].timeouts >= MAX_TIMEOUTS:
                        return error
                except TransientError as error:
                    self.instrumentation.count_retry(self.stage.name, error.code)
                    if isinstance(error, EngineUnavailable):
                        # Keyed by reaction: concurrent ones wait for engines independently.
                        self._engine_outages[retry_budget] = error
                    if retry_budget.record_failure(error, self.successes):
                        return error
                    await asyncio.sleep(self.backoff.compute_delay_s(retry_budget.failures))
                else:
                    self.successes += 1
                    # A success shows that the defect is specific to some events.
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
        # The claims recorded all other attempts; an update here could make a revision wait and be
        # overtaken.
        suspects = _list_event_ids(item for item in items if item.is_suspect)
        self._open_attempts.add(suspects)
        try:
            if suspects:
                await self._retry_outages(
                    lambda: self.ledger.record_attempt(self.stage.name, suspects)
                )
            async with asyncio.timeout(self.stage.deadline_s):
                emissions = await self.stage.react(pending_events, self.ports)
        finally:
            await self._open_attempts.withdraw(suspects)
        # Each emission must succeed or fail with its own event, hence the grouping by cause.
        emissions_by_cause: dict[Any, list[Emission]] = {}
        for emission in emissions:
            emissions_by_cause.setdefault(emission.cause.id, []).append(emission)
        for item in items:
            event = item.pending_event.event if item.pending_event else None
            item.emissions = emissions_by_cause.get(event.id, []) if event else []

    def _dead_letter(self, item: WorkItem, error: Exception) -> None:
        # Any other exception is a defect of this program, not a property of the event.
        if not isinstance(error, AnabranchError | TimeoutError):
            self.consecutive_bugs += 1
            log.error(
                "reaction_failed_unexpectedly",
                stage=self.stage.name,
                error="".join(traceback.format_exception(error)),
            )
            if self.consecutive_bugs >= MAX_CONSECUTIVE_BUGS:
                raise FatalError(
                    f"Stage {self.stage.name} failed on {MAX_CONSECUTIVE_BUGS} consecutive events, "
                    f"each time by a defect. The last error: {error!r}",
                    code="TOO_MANY_BUGS",
                ) from error
        event = item.pending_event.event if item.pending_event else None
        # Shared stages run once for all generations, so their dead letters belong to none.
        generation = None if self.stage.serves_all_generations else self.publisher.generation
        item.emissions = []
        item.dead_letter = DeadLetter.from_error(
            item.stored_record,
            event,
            self.stage,
            generation.name if generation else None,
            error,
            max(1, item.attempts),
        )
        log.warning(
            "event_dead_lettered",
            stage=self.stage.name,
            event_id=str(event.id) if event else None,
            code=item.dead_letter.data.code,
            detail=item.dead_letter.data.detail,
        )

    async def _retry_outages(self, call: Callable[[], Awaitable[T]]) -> T:
        return await retry_outages(
            call,
            self.backoff,
            lambda error: self.instrumentation.count_retry(self.stage.name, error.code),
            stage=self.stage.name,
        )


def _list_event_ids(items: Iterable[WorkItem]) -> list[UUID]:
    return [item.pending_event.event.id for item in items if item.pending_event is not None]
