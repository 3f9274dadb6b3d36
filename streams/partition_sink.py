"""The sink of one partition of a stage: bounded queue, concurrent reactions, acknowledgements in
order.

Records are claimed in log order. Their reactions run concurrently and end in any order. Only the
longest finished prefix is acknowledged, because Faust commits past unacknowledged gaps.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial

import structlog

from schemas.errors import LogUnavailable, NewerVersion
from schemas.ports.log import Partition
from schemas.topics import StoredRecord
from streams.runner import StageRunner, WorkItem


class FairQueue:
    """First in, first out within a document; round robin among documents.

    At most `max_in_flight` items of a document are taken and not yet released, so that a long
    document leaves slots for later ones. `key` returns the document, or what else groups items.
    """

    def __init__(self, max_in_flight: int, key: Callable[[WorkItem], object]) -> None:
        self.max_in_flight, self.key = max_in_flight, key
        self.ready_queues: dict[object, deque[WorkItem]] = {}
        self.blocked_queues: dict[object, deque[WorkItem]] = {}
        """Queues of documents with `max_in_flight` items taken."""
        self.in_flight: Counter[object] = Counter()
        self.count = 0

    @property
    def has_ready_items(self) -> bool:
        return bool(self.ready_queues)

    def add(self, item: WorkItem) -> None:
        queue_key = self.key(item)
        self._select_queues(queue_key).setdefault(queue_key, deque()).append(item)
        self.count += 1

    def take(self, max_items: int, max_bytes: int) -> list[WorkItem]:
        """Take at least one and up to `max_items` items within `max_bytes`, one per document in
        turn.
        """
        batch: list[WorkItem] = []
        total_bytes = 0
        while self.ready_queues and len(batch) < max_items:
            queue_key, queue = next(iter(self.ready_queues.items()))
            size = queue[0].stored_record.size_bytes
            # The first item is taken whatever its size, or a large event would never be processed.
            if batch and total_bytes + size > max_bytes:
                break
            batch.append(queue.popleft())
            total_bytes += size
            self.in_flight[queue_key] += 1
            # Removed and appended again: the order of this dict is the round robin.
            del self.ready_queues[queue_key]
            if queue:  # appended at the end: the other documents come first
                self._select_queues(queue_key)[queue_key] = queue
        self.count -= len(batch)
        return batch

    def release(self, items: Sequence[WorkItem]) -> None:
        """Free the slots of items whose reaction has ended."""
        for queue_key, ended_count in Counter(map(self.key, items)).items():
            # Counter subtraction drops keys at zero, so finished documents leave nothing behind.
            self.in_flight -= Counter({queue_key: ended_count})
            if queue_key in self.blocked_queues:
                self.ready_queues[queue_key] = self.blocked_queues.pop(queue_key)

    def _select_queues(self, queue_key: object) -> dict[object, deque[WorkItem]]:
        return (
            self.blocked_queues
            if self.in_flight[queue_key] >= self.max_in_flight
            else self.ready_queues
        )


log = structlog.get_logger(__name__)
STATUS_RENEWAL_S = 10.0
"""Interval at which the status of a paused partition is reported again."""


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """Limits of one partition. Bytes count queued and unfinished records."""

    queue_bytes: int = 24 * 1024 * 1024
    """Enough for the parts of a document of 3,000 pages: documents behind it are read too."""
    stage_bytes: int = 48 * 1024 * 1024
    """For all partitions of the stage in this process together."""
    reserved_bytes: int = 2 * 1024 * 1024
    """A partition may always use this much, even if the others have used up `stage_bytes`."""
    claim_batch_records: int = 256
    finish_batch_records: int = 128
    concurrent_finishes: int = 1
    max_pending: int = 512
    max_reactions: int = 32
    max_reactions_per_document: int = 8
    max_fetches: int = 8
    """Reactions that wait for a foreign server; they do not count towards `max_reactions`."""
    max_fetches_per_host: int = 4
    max_pending_fetches: int = 20_000
    """Claimed events that wait for a fetch slot; large, so that events behind them continue."""
    reaction_batch_bytes: int = 64 * 1024
    prune_interval_records: int = 5_000


@dataclass(slots=True)
class ReactionPool:
    """A queue of reactions and the slots in which they run."""

    queue: FairQueue
    capacity: int
    is_foreign: bool = False
    """True if its reactions wait for foreign servers."""
    running: int = 0

    @property
    def free_slots(self) -> int:
        return self.capacity - self.running if self.queue.has_ready_items else 0


@dataclass(slots=True)
class ByteBudget:
    """Bytes buffered by all partitions of a stage in this process."""

    used_bytes: int = 0


ReportPause = Callable[[Partition, NewerVersion | None], Awaitable[None]]
"""Reports why a partition is paused, again and again, and None once it no longer is."""


class PartitionSink:
    """The `Sink` of one partition.

    `on_failure` is called if the stage must stop or restart. `byte_budget` is shared by the stage's
    partitions.
    """

    def __init__(
        self,
        runner: StageRunner,
        partition: Partition,
        on_failure: Callable[[BaseException], None],
        limits: PartitionLimits | None = None,
        byte_budget: ByteBudget | None = None,
        report_pause: ReportPause | None = None,
    ) -> None:
        self.runner, self.partition, self.on_failure = runner, partition, on_failure
        self.limits = limits or PartitionLimits()
        self.byte_budget = byte_budget or ByteBudget()
        self.report_pause = report_pause
        self.queue: deque[StoredRecord] = deque()
        self.pending_items = FairQueue(
            1 if runner.stage.is_ordered else self.limits.max_reactions_per_document,
            key=self._resolve_document,
        )
        self.pending_fetches = FairQueue(self.limits.max_fetches_per_host, key=self._resolve_host)
        self.reaction_pools = (
            ReactionPool(self.pending_items, self.limits.max_reactions),
            ReactionPool(self.pending_fetches, self.limits.max_fetches, is_foreign=True),
        )
        self.items_to_finish: deque[WorkItem] = deque()
        self.unacknowledged_offsets: deque[int] = deque()
        """In log order. Finished records keep only their offset: many may wait behind one long
        document.
        """
        # A counter, since an offset may be delivered more than once.
        self.finished_offsets: Counter[int] = Counter()
        self.claimed_items: set[WorkItem] = set()
        """Claimed and unfinished: `close` withdraws the attempts recorded by their claims."""
        self.buffered_bytes = 0
        self.is_paused = self.is_closing = False
        self.acknowledged_since_prune = 0
        self.prunable_below = 0
        self.records_arrived = asyncio.Event()
        self.capacity_changed = asyncio.Event()
        self.items_ready_to_finish = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        self.fetched_slots = asyncio.Semaphore(self.limits.max_reactions)
        finish_loops = [self._run_finish_loop] * self.limits.concurrent_finishes
        for loop in (self._run_claim_loop, self._run_reaction_loop, *finish_loops):
            self._start_task(loop)

    def offer(self, record: StoredRecord) -> None:
        self.queue.append(record)
        self._adjust_bytes(record.size_bytes)
        # Never cleared here: only `_resume_if_drained` may resume the partition.
        self.is_paused = self.is_paused or self.is_full
        self.records_arrived.set()

    @property
    def is_full(self) -> bool:
        is_stage_over_budget = (
            self.byte_budget.used_bytes > self.limits.stage_bytes
            and self.buffered_bytes > self.limits.reserved_bytes
        )
        return self.buffered_bytes > self.limits.queue_bytes or is_stage_over_budget

    @property
    def has_room(self) -> bool:
        """Return whether a paused partition should resume: at half of its limits, so that it does
        not flap.
        """
        is_stage_half_empty = (self.byte_budget.used_bytes <= self.limits.stage_bytes // 2) or (
            self.buffered_bytes <= self.limits.reserved_bytes // 2
        )
        return self.buffered_bytes <= self.limits.queue_bytes // 2 and is_stage_half_empty

    async def close(self) -> None:
        self.is_closing = True
        # If one of these tasks closes the sink, it must not await itself.
        tasks = [task for task in self.tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Otherwise the next owner would count these attempts as workers that were killed.
        if self.claimed_items:
            await self.runner.release(self.claimed_items)
        # The budget is shared: bytes of a closed partition would keep the others paused.
        self._adjust_bytes(-self.buffered_bytes)

    def _adjust_bytes(self, delta: int) -> None:
        self.buffered_bytes += delta
        self.byte_budget.used_bytes += delta

    def _start_task(self, run: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(self._run_guarded(run))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _run_guarded(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except asyncio.CancelledError:
            # A cancellation may leak out of something awaited; the open partition would stall
            # without a task.
            if not self.is_closing:
                self.on_failure(
                    LogUnavailable(f"Processing of {self.partition.topic} was cancelled.")
                )
            raise
        except BaseException as error:
            self.on_failure(error)

    async def _run_claim_loop(self) -> None:
        while True:
            # Claim only while reactions keep up: claimed events hold memory and an attempt each.
            await self._wait_until(self.records_arrived, lambda: bool(self.queue))
            await self._wait_until(
                self.capacity_changed,
                lambda: (
                    self.pending_items.count < self.limits.max_pending
                    and self.pending_fetches.count < self.limits.max_pending_fetches
                ),
            )
            records = [
                self.queue.popleft()
                for _ in range(min(len(self.queue), self.limits.claim_batch_records))
            ]
            try:
                items = await self.runner.claim(records)
            except NewerVersion as error:
                # Never returns; only closing the sink cancels it.
                await self._stall(error)
            # `claim` stops before a record of a newer version, which raises as the first of the
            # next batch.
            self.queue.extendleft(reversed(records[len(items) :]))
            self._dispatch(items)

    def _dispatch(self, items: list[WorkItem]) -> None:
        self.unacknowledged_offsets.extend(item.stored_record.position.offset for item in items)
        for item in items:
            if item.is_delegated:
                # Stays unacknowledged, since another program reacts to it; the records behind it
                # continue.
                self._adjust_bytes(-item.stored_record.size_bytes)
            # Only these need a reaction; all others go straight to the finish loop.
            elif item.dead_letter is None and item.pending_event is not None:
                self.claimed_items.add(item)
                (
                    self.pending_items if self._resolve_host(item) is None else self.pending_fetches
                ).add(item)
            else:
                self.items_to_finish.append(item)
        self._resume_if_drained()
        self.capacity_changed.set()
        self.items_ready_to_finish.set()

    def _resolve_document(self, item: WorkItem) -> object:
        if item.pending_event is None:
            return None
        event = item.pending_event.event
        return self.runner.stage.resolve_document(event) or event.id

    def _resolve_host(self, item: WorkItem) -> str | None:
        return (
            self.runner.stage.resolve_host(item.pending_event.event) if item.pending_event else None
        )

    async def _run_reaction_loop(self) -> None:
        while True:
            await self._wait_until(
                self.capacity_changed, lambda: any(pool.free_slots for pool in self.reaction_pools)
            )
            stage = self.runner.stage
            # Pools are independent, so that slow foreign servers leave the engines' slots free.
            for pool in self.reaction_pools:
                if not pool.free_slots:
                    continue
                batch = pool.queue.take(
                    min(stage.batch_size, pool.free_slots), self.limits.reaction_batch_bytes
                )
                pool.running += len(batch)
                self.capacity_changed.set()
                self.runner.instrumentation.adjust_in_flight(stage.name, len(batch))
                self._start_task(partial(self._react, batch, pool))

    async def _react(self, batch: list[WorkItem], pool: ReactionPool) -> None:
        started_at = asyncio.get_running_loop().time()
        # If `react` raises, all items count as ended, and leave their slots.
        ended_items = list(batch)
        with ExitStack() as slots:
            slots.callback(self._free_slots, ended_items, pool)
            timed_out_ids = {id(item) for item in await self.runner.react(batch)}
            ended_items[:] = [item for item in batch if id(item) not in timed_out_ids]
            self.runner.instrumentation.observe_duration(
                self.runner.stage.name, asyncio.get_running_loop().time() - started_at
            )
            async with self.fetched_slots if pool.is_foreign else nullcontext():
                if pool.is_foreign:
                    # The chain does not need the foreign server.
                    slots.close()
                await self.runner.chain_stages(ended_items)
        self.items_to_finish.extend(ended_items)
        self.items_ready_to_finish.set()
        # Items of a batch that timed out keep their slots and are retried one by one.
        for item in batch:
            if id(item) in timed_out_ids:
                self._start_task(partial(self._react, [item], pool))

    def _free_slots(self, items: list[WorkItem], pool: ReactionPool) -> None:
        pool.running -= len(items)
        pool.queue.release(items)
        self.runner.instrumentation.adjust_in_flight(self.runner.stage.name, -len(items))
        self.capacity_changed.set()

    async def _run_finish_loop(self) -> None:
        while True:
            await self._wait_until(self.items_ready_to_finish, lambda: bool(self.items_to_finish))
            # All that ended meanwhile share one publication and one transaction.
            items = [
                self.items_to_finish.popleft()
                for _ in range(min(len(self.items_to_finish), self.limits.finish_batch_records))
            ]
            items_to_settle = [
                item
                for item in items
                if item.pending_event is not None or item.dead_letter is not None
            ]
            if items_to_settle:
                # Acknowledge only afterwards: a crash in between must redeliver the event.
                await self.runner.finish(items_to_settle)
            self.claimed_items.difference_update(items)
            self._acknowledge(items)
            await self._prune()

    def _acknowledge(self, items: list[WorkItem]) -> None:
        for item in items:
            self.finished_offsets[item.stored_record.position.offset] += 1
            self._adjust_bytes(-item.stored_record.size_bytes)
        last_offset = None
        # Advance over the finished prefix only; a gap stays until its event is finished.
        while self.unacknowledged_offsets and self.finished_offsets[self.unacknowledged_offsets[0]]:
            last_offset = self.unacknowledged_offsets.popleft()
            self.finished_offsets[last_offset] -= 1
            if not self.finished_offsets[last_offset]:
                del self.finished_offsets[last_offset]
            self.acknowledged_since_prune += 1
        if last_offset is not None:
            # Kafka commits the next offset to read, not the last one read.
            self.partition.acknowledge(last_offset + 1)
        self._resume_if_drained()

    def _resume_if_drained(self) -> None:
        if self.is_paused and self.has_room:
            self.is_paused = False
            self.partition.resume()

    async def _prune(self) -> None:
        """Delete inbox entries of committed events."""
        # One round late, so that an event published twice in a row is still recognized. Only below
        # the committed offset: a redelivered event without its entry would count as superseded.
        if self.acknowledged_since_prune < self.limits.prune_interval_records:
            return
        self.acknowledged_since_prune = 0
        if self.prunable_below:
            await self.runner.prune(
                self.partition.topic, self.partition.number, self.prunable_below
            )
        # Taken after the prune: these entries live for one more round.
        self.prunable_below = self.partition.committed_offset

    async def _stall(self, error: NewerVersion) -> None:
        """Wait until revoked: in a rolling upgrade only a newer worker can read these events."""
        partition_fields = {
            "stage": self.runner.stage.name,
            "topic": self.partition.topic,
            "partition": self.partition.number,
        }
        log.error("partition_paused", **partition_fields, detail=error.detail, remedy=error.remedy)
        try:
            while True:
                if self.report_pause is not None:
                    await self.report_pause(self.partition, error)
                await asyncio.sleep(STATUS_RENEWAL_S)
        finally:
            if self.report_pause is not None:
                await self.report_pause(self.partition, None)

    async def _wait_until(self, event: asyncio.Event, is_ready: Callable[[], bool]) -> None:
        while not is_ready():
            # Cleared only while not ready: the loop checks again before it waits, so no wake-up is
            # lost.
            event.clear()
            await event.wait()
