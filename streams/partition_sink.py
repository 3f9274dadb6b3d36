"""One assigned partition of one stage: a queue bounded in bytes, many reactions at once, acknowledgements in order.

Records are claimed in their order; their reactions run at once and end in any order; only the longest finished prefix is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from schemas.errors import LogUnavailable, NewerVersion, TransientError
from schemas.ports.log import Partition
from schemas.ports.reader_status import ReaderStatus
from schemas.records import StoredRecord
from streams.fair_queue import FairQueue
from streams.runner import StageRunner, WorkItem

log = structlog.get_logger(__name__)
STATUS_RENEWAL_S = 10.0
"""How often it is told that a partition still stands still."""


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """How much a partition holds. Bytes are those of queued and unfinished records together."""

    queue_bytes: int = 24 * 1024 * 1024
    """Room for the parts of a document of 3,000 pages, so that what lies behind them is seen."""
    stage_bytes: int = 48 * 1024 * 1024
    """Of all partitions of the stage in this process; each may hold `share_bytes` whatever the others do."""
    reserved_bytes: int = 2 * 1024 * 1024
    claim_batch_records: int = 256
    max_pending: int = 512
    max_reactions: int = 32
    max_reactions_per_document: int = 8
    """Of one document."""
    max_fetches: int = 8
    """Reactions that wait for a foreign server: a quarter of `reactions`, beside them."""
    max_fetches_per_host: int = 4
    """From one host."""
    max_pending_fetches: int = 20_000
    """Claimed events that wait for such a place, so that what comes behind them goes on."""
    reaction_batch_bytes: int = 64 * 1024
    prune_interval_records: int = 5_000


@dataclass(slots=True)
class ReactionPool:
    """Reactions that share places."""

    queue: FairQueue
    capacity: int
    running: int = 0

    @property
    def free_slots(self) -> int:
        return self.capacity - self.running if self.queue.has_ready_items else 0


@dataclass(slots=True)
class ByteBudget:
    """Bytes that the partitions of a stage hold together."""

    used_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StallReporter:
    """Where a group tells that a partition of its own stands still."""

    reader_status: ReaderStatus
    group: str

    async def set_paused(self, partition: Partition, reason: NewerVersion) -> None:
        try:
            await self.reader_status.set_paused(self.group, partition.topic, partition.number, reason)
        except TransientError as error:
            log.warning("why a partition stands still could not be told", topic=partition.topic, code=error.code, detail=error.detail)

    async def clear_paused(self, partition: Partition) -> None:
        with suppress(TransientError):
            await self.reader_status.clear_paused(self.group, partition.topic, partition.number)


class PartitionSink:
    """The `Sink` of one partition. `failed` is called once if the stage must stop for good. `together` is shared with the stage's other partitions."""

    def __init__(
        self,
        runner: StageRunner,
        partition: Partition,
        on_failure: Callable[[BaseException], None],
        limits: PartitionLimits | None = None,
        byte_budget: ByteBudget | None = None,
        stall_reporter: StallReporter | None = None,
    ) -> None:
        self.runner, self.partition, self.on_failure = runner, partition, on_failure
        self.limits = limits or PartitionLimits()
        self.byte_budget = byte_budget or ByteBudget()
        self.stall_reporter = stall_reporter
        self.queue: deque[StoredRecord] = deque()
        self.pending_items = FairQueue(self.limits.max_reactions_per_document)
        self.pending_fetches = FairQueue(self.limits.max_fetches_per_host, key=self._resolve_host)
        self.reaction_pools = (ReactionPool(self.pending_items, self.limits.max_reactions), ReactionPool(self.pending_fetches, self.limits.max_fetches))
        self.items_to_finish: deque[WorkItem] = deque()
        self.unacknowledged_offsets: deque[int] = deque()
        """Offsets not yet acknowledged, in reading order. Of what is finished nothing else is kept: much may wait behind one long document."""
        self.finished_offsets: Counter[int] = Counter()
        self.claimed_items: set[WorkItem] = set()
        """What is not finished: closing takes back the attempts that the claims noted."""
        self.buffered_bytes = 0
        self.is_paused = self.is_closing = False
        self.acknowledged_since_prune = 0
        self.prunable_below = 0
        self.records_arrived, self.capacity_changed, self.items_ready_to_finish = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        for loop in (self._run_claim_loop, self._run_reaction_loop, self._run_finish_loop):
            self._start_task(loop)

    def offer(self, record: StoredRecord) -> None:
        self.queue.append(record)
        self._adjust_bytes(record.size_bytes)
        self.is_paused = self.is_paused or self.is_full
        self.records_arrived.set()

    @property
    def is_full(self) -> bool:
        is_stage_over_budget = self.byte_budget.used_bytes > self.limits.stage_bytes and self.buffered_bytes > self.limits.reserved_bytes
        return self.buffered_bytes > self.limits.queue_bytes or is_stage_over_budget

    @property
    def has_room(self) -> bool:
        """Half empty: worth being resumed."""
        is_stage_half_empty = (self.byte_budget.used_bytes <= self.limits.stage_bytes // 2) or (self.buffered_bytes <= self.limits.reserved_bytes // 2)
        return self.buffered_bytes <= self.limits.queue_bytes // 2 and is_stage_half_empty

    async def close(self) -> None:
        self.is_closing = True
        tasks = [task for task in self.tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.claimed_items:
            await self.runner.release(self.claimed_items)
        self._adjust_bytes(-self.buffered_bytes)

    def _adjust_bytes(self, delta: int) -> None:
        self.buffered_bytes += delta
        self.byte_budget.used_bytes += delta

    def _start_task(self, run: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(self._run_guarded(run))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _run_guarded(self, run: Callable[[], Awaitable[None]]) -> None:
        """One that ends while the partition is open would leave it standing still, whatever it ended of: of a cancellation that was meant for something that
        it waited for, too."""
        try:
            await run()
        except asyncio.CancelledError:
            if not self.is_closing:
                self.on_failure(LogUnavailable(f"Work on {self.partition.topic} was broken off by what it waited for."))
            raise
        except BaseException as error:
            self.on_failure(error)

    async def _run_claim_loop(self) -> None:
        while True:
            await self._wait_until(self.records_arrived, lambda: bool(self.queue))
            await self._wait_until(
                self.capacity_changed,
                lambda: self.pending_items.count < self.limits.max_pending and self.pending_fetches.count < self.limits.max_pending_fetches,
            )
            records = [self.queue.popleft() for _ in range(min(len(self.queue), self.limits.claim_batch_records))]
            try:
                items = await self.runner.claim(records)
            except NewerVersion as error:
                await self._stall(error)
            self.queue.extendleft(reversed(records[len(items) :]))
            self._dispatch(items)

    def _dispatch(self, items: list[WorkItem]) -> None:
        self.unacknowledged_offsets.extend(item.stored_record.position.offset for item in items)
        for item in items:
            if item.is_delegated:
                self._adjust_bytes(-item.stored_record.size_bytes)
            elif item.dead_letter is None and item.pending_event is not None:
                self.claimed_items.add(item)
                (self.pending_items if self._resolve_host(item) is None else self.pending_fetches).add(item)
            else:
                self.items_to_finish.append(item)
        self._resume_if_drained()
        self.capacity_changed.set()
        self.items_ready_to_finish.set()

    def _resolve_host(self, item: WorkItem) -> str | None:
        return self.runner.stage.resolve_host(item.pending_event.event) if item.pending_event else None

    async def _run_reaction_loop(self) -> None:
        while True:
            await self._wait_until(self.capacity_changed, lambda: any(pool.free_slots for pool in self.reaction_pools))
            stage = self.runner.stage
            for pool in self.reaction_pools:
                if not pool.free_slots:
                    continue
                batch = pool.queue.take(min(stage.batch_size, pool.free_slots), self.limits.reaction_batch_bytes)
                pool.running += len(batch)
                self.capacity_changed.set()
                self.runner.instrumentation.adjust_in_flight(stage.name, len(batch))
                self._start_task(partial(self._react, batch, pool))

    async def _react(self, batch: list[WorkItem], pool: ReactionPool) -> None:
        started_at = asyncio.get_running_loop().time()
        ended_items = batch
        try:
            timed_out_ids = {id(item) for item in await self.runner.react(batch)}
            ended_items = [item for item in batch if id(item) not in timed_out_ids]
        finally:
            pool.running -= len(ended_items)
            pool.queue.release(ended_items)
            self.runner.instrumentation.adjust_in_flight(self.runner.stage.name, -len(ended_items))
        self.runner.instrumentation.observe_duration(self.runner.stage.name, asyncio.get_running_loop().time() - started_at)
        self.items_to_finish.extend(ended_items)
        self.capacity_changed.set()
        self.items_ready_to_finish.set()
        for item in batch:
            if id(item) in timed_out_ids:
                self._start_task(partial(self._react, [item], pool))

    async def _run_finish_loop(self) -> None:
        while True:
            await self._wait_until(self.items_ready_to_finish, lambda: bool(self.items_to_finish))
            items = [self.items_to_finish.popleft() for _ in range(len(self.items_to_finish))]
            items_to_settle = [item for item in items if item.pending_event is not None or item.dead_letter is not None]
            if items_to_settle:
                await self.runner.finish(items_to_settle)
            self.claimed_items.difference_update(items)
            self._acknowledge(items)
            await self._prune()

    def _acknowledge(self, items: list[WorkItem]) -> None:
        for item in items:
            self.finished_offsets[item.stored_record.position.offset] += 1
            self._adjust_bytes(-item.stored_record.size_bytes)
        last_offset = None
        while self.unacknowledged_offsets and self.finished_offsets[self.unacknowledged_offsets[0]]:
            last_offset = self.unacknowledged_offsets.popleft()
            self._remove_finished_offset(last_offset)
            self.acknowledged_since_prune += 1
        if last_offset is not None:
            self.partition.acknowledge(last_offset + 1)
        self._resume_if_drained()

    def _resume_if_drained(self) -> None:
        if self.is_paused and self.has_room:
            self.is_paused = False
            self.partition.resume()

    def _remove_finished_offset(self, offset: int) -> None:
        self.finished_offsets[offset] -= 1
        if not self.finished_offsets[offset]:
            del self.finished_offsets[offset]

    async def _prune(self) -> None:
        """Claims of what comes no more are forgotten, one round late, so that what was published twice in a row is still known. What may come again must be:
        without its claim it would be taken for late, and its producer told so."""
        if self.acknowledged_since_prune < self.limits.prune_interval_records:
            return
        self.acknowledged_since_prune = 0
        if self.prunable_below:
            await self.runner.prune(self.partition.topic, self.partition.number, self.prunable_below)
        self.prunable_below = self.partition.committed_offset

    async def _stall(self, error: NewerVersion) -> None:
        """A rolling upgrade: what comes is newer than this worker. The partition waits for one that can read it."""
        partition_fields = {"stage": self.runner.stage.name, "topic": self.partition.topic, "partition": self.partition.number}
        log.error("partition paused", **partition_fields, detail=error.detail, remedy=error.remedy)
        try:
            while True:
                if self.stall_reporter is not None:
                    await self.stall_reporter.set_paused(self.partition, error)
                await asyncio.sleep(STATUS_RENEWAL_S)
        finally:
            if self.stall_reporter is not None:
                await self.stall_reporter.clear_paused(self.partition)

    async def _wait_until(self, event: asyncio.Event, is_ready: Callable[[], bool]) -> None:
        while not is_ready():
            event.clear()
            await event.wait()
