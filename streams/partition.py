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
from schemas.ports.pauses import Pauses
from schemas.records import StoredRecord
from streams.runner import Runner, Work
from streams.waiting import WaitingRoom

log = structlog.get_logger(__name__)
RENEWED_S = 10.0
"""How often it is told that a partition still stands still."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a partition holds. Bytes are those of queued and unfinished records together."""

    queue_bytes: int = 24 * 1024 * 1024
    """Room for the parts of a document of 3,000 pages, so that what lies behind them is seen."""
    stage_bytes: int = 48 * 1024 * 1024
    """Of all partitions of the stage in this process; each may hold `share_bytes` whatever the others do."""
    share_bytes: int = 2 * 1024 * 1024
    claim_records: int = 256
    waiting: int = 512
    reactions: int = 32
    reactions_of_one: int = 8
    """Of one document."""
    fetches: int = 8
    """Reactions that wait for a foreign server: a quarter of `reactions`, beside them."""
    fetches_of_one: int = 4
    """From one host."""
    fetches_waiting: int = 20_000
    """Claimed events that wait for such a place, so that what comes behind them goes on."""
    group_bytes: int = 64 * 1024
    prune_every: int = 5_000


@dataclass(slots=True)
class Lane:
    """Reactions that share places."""

    room: WaitingRoom
    places: int
    reacting: int = 0

    @property
    def free(self) -> int:
        return self.places - self.reacting if self.room.ready else 0


@dataclass(slots=True)
class Held:
    """Bytes that the partitions of a stage hold together."""

    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group tells that a partition of its own stands still."""

    pauses: Pauses
    group: str

    async def note(self, partition: Partition, reason: NewerVersion) -> None:
        try:
            await self.pauses.note(self.group, partition.topic, partition.number, reason)
        except TransientError as error:
            log.warning("why a partition stands still could not be told", topic=partition.topic, code=error.code, detail=error.detail)

    async def forget(self, partition: Partition) -> None:
        with suppress(TransientError):
            await self.pauses.forget(self.group, partition.topic, partition.number)


class PartitionSink:
    """The `Sink` of one partition. `failed` is called once if the stage must stop for good. `together` is shared with the stage's other partitions."""

    def __init__(
        self,
        runner: Runner,
        partition: Partition,
        failed: Callable[[BaseException], None],
        bounds: Bounds | None = None,
        together: Held | None = None,
        standing: Standing | None = None,
    ) -> None:
        self.runner, self.partition, self.failed = runner, partition, failed
        self.bounds = bounds or Bounds()
        self.together = together or Held()
        self.standing = standing
        self.queue: deque[StoredRecord] = deque()
        self.waiting = WaitingRoom(self.bounds.reactions_of_one)
        self.fetching = WaitingRoom(self.bounds.fetches_of_one, key=self._host)
        self.lanes = (Lane(self.waiting, self.bounds.reactions), Lane(self.fetching, self.bounds.fetches))
        self.done: deque[Work] = deque()
        self.order: deque[int] = deque()
        """Offsets not yet acknowledged, in reading order. Of what is finished nothing else is kept: much may wait behind one long document."""
        self.finished: Counter[int] = Counter()
        self.claimed: set[Work] = set()
        """What is not finished: closing takes back the attempts that the claims noted."""
        self.bytes = 0
        self.paused = self.closing = False
        self.acknowledged = 0
        self.prunable = 0
        self.arrived, self.changed, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        for loop in (self._claim_loop, self._react_loop, self._finish_loop):
            self._start(loop)

    def offer(self, record: StoredRecord) -> None:
        self.queue.append(record)
        self._hold(record.size)
        self.paused = self.paused or self.full
        self.arrived.set()

    @property
    def full(self) -> bool:
        crowded = self.together.bytes > self.bounds.stage_bytes and self.bytes > self.bounds.share_bytes
        return self.bytes > self.bounds.queue_bytes or crowded

    @property
    def roomy(self) -> bool:
        """Half empty: worth being resumed."""
        half = (self.together.bytes <= self.bounds.stage_bytes // 2) or (self.bytes <= self.bounds.share_bytes // 2)
        return self.bytes <= self.bounds.queue_bytes // 2 and half

    async def close(self) -> None:
        self.closing = True
        tasks = [task for task in self.tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.claimed:
            await self.runner.release(self.claimed)
        self._hold(-self.bytes)

    def _hold(self, more: int) -> None:
        self.bytes += more
        self.together.bytes += more

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(self._guarded(work))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """One that ends while the partition is open would leave it standing still, whatever it ended of: of a cancellation that was meant for something that
        it waited for, too."""
        try:
            await work()
        except asyncio.CancelledError:
            if not self.closing:
                self.failed(LogUnavailable(f"Work on {self.partition.topic} was broken off by what it waited for."))
            raise
        except BaseException as error:
            self.failed(error)

    async def _claim_loop(self) -> None:
        while True:
            await self._until(self.arrived, lambda: bool(self.queue))
            await self._until(self.changed, lambda: self.waiting.count < self.bounds.waiting and self.fetching.count < self.bounds.fetches_waiting)
            records = [self.queue.popleft() for _ in range(min(len(self.queue), self.bounds.claim_records))]
            try:
                works = await self.runner.claim(records)
            except NewerVersion as error:
                await self._stand_still(error)
            self.queue.extendleft(reversed(records[len(works) :]))
            self._sort(works)

    def _sort(self, works: list[Work]) -> None:
        self.order.extend(work.stored.position.offset for work in works)
        for work in works:
            if work.left:
                self._hold(-work.stored.size)
            elif work.burial is None and work.counted is not None:
                self.claimed.add(work)
                (self.waiting if self._host(work) is None else self.fetching).add(work)
            else:
                self.done.append(work)
        self._resume()
        self.changed.set()
        self.ended.set()

    def _host(self, work: Work) -> str | None:
        return self.runner.stage.host(work.counted.fact) if work.counted else None

    async def _react_loop(self) -> None:
        while True:
            await self._until(self.changed, lambda: any(lane.free for lane in self.lanes))
            stage = self.runner.stage
            for lane in self.lanes:
                if not lane.free:
                    continue
                group = lane.room.take(min(stage.batch, lane.free), self.bounds.group_bytes)
                lane.reacting += len(group)
                self.changed.set()
                self.runner.observer.in_flight(stage.name, len(group))
                self._start(partial(self._react, group, lane))

    async def _react(self, group: list[Work], lane: Lane) -> None:
        started = asyncio.get_running_loop().time()
        ended = group
        try:
            alone = {id(work) for work in await self.runner.react(group)}
            ended = [work for work in group if id(work) not in alone]
        finally:
            lane.reacting -= len(ended)
            lane.room.give_back(ended)
            self.runner.observer.in_flight(self.runner.stage.name, -len(ended))
        self.runner.observer.took(self.runner.stage.name, asyncio.get_running_loop().time() - started)
        self.done.extend(ended)
        self.changed.set()
        self.ended.set()
        for work in group:
            if id(work) in alone:
                self._start(partial(self._react, [work], lane))

    async def _finish_loop(self) -> None:
        while True:
            await self._until(self.ended, lambda: bool(self.done))
            works = [self.done.popleft() for _ in range(len(self.done))]
            owed = [work for work in works if work.counted is not None or work.burial is not None]
            if owed:
                await self.runner.finish(owed)
            self.claimed.difference_update(works)
            self._acknowledge(works)
            await self._prune()

    def _acknowledge(self, works: list[Work]) -> None:
        for work in works:
            self.finished[work.stored.position.offset] += 1
            self._hold(-work.stored.size)
        last = None
        while self.order and self.finished[self.order[0]]:
            last = self.order.popleft()
            self._forget(last)
            self.acknowledged += 1
        if last is not None:
            self.partition.acknowledge(last + 1)
        self._resume()

    def _resume(self) -> None:
        if self.paused and self.roomy:
            self.paused = False
            self.partition.resume()

    def _forget(self, offset: int) -> None:
        self.finished[offset] -= 1
        if not self.finished[offset]:
            del self.finished[offset]

    async def _prune(self) -> None:
        """Claims of what comes no more are forgotten, one round late, so that what was published twice in a row is still known. What may come again must be:
        without its claim it would be taken for late, and its producer told so."""
        if self.acknowledged < self.bounds.prune_every:
            return
        self.acknowledged = 0
        if self.prunable:
            await self.runner.prune(self.partition.topic, self.partition.number, self.prunable)
        self.prunable = self.partition.kept

    async def _stand_still(self, error: NewerVersion) -> None:
        """A rolling upgrade: what comes is newer than this worker. The partition waits for one that can read it."""
        place = {"stage": self.runner.stage.name, "topic": self.partition.topic, "partition": self.partition.number}
        log.error("partition paused", **place, detail=error.detail, remedy=error.remedy)
        try:
            while True:
                if self.standing is not None:
                    await self.standing.note(self.partition, error)
                await asyncio.sleep(RENEWED_S)
        finally:
            if self.standing is not None:
                await self.standing.forget(self.partition)

    async def _until(self, event: asyncio.Event, ready: Callable[[], bool]) -> None:
        while not ready():
            event.clear()
            await event.wait()
