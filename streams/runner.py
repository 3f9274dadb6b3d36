"""The runner: what turns a stage's two functions into exactly-once effect, on every log.

    decode → first transaction (claim, rows) → react → publish → second transaction (reacted or buried) → acknowledge

Acknowledging is the partition's business (`streams.partition`); everything else is here. A crash between any two steps redelivers the
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

from schemas.errors import (
    AnabranchError,
    DuplicateEventId,
    EngineUnavailable,
    Erased,
    FatalError,
    NewerVersion,
    PermanentError,
    TransientError,
)
from schemas.events import EventBuried, Fact
from schemas.ports.bundle import Ports
from schemas.ports.ledger import NOTED_BY_CLAIMS, Claim, Claimed, Ledger, Projected
from schemas.ports.log import EventLog
from schemas.records import Record, StoredRecord
from streams.burial import Burial, buried_facts
from streams.codec import Codec
from streams.observe import Observer
from streams.publisher import Publisher
from streams.stage import Counted, Stage, Statement
from streams.topics import CONTROL
from streams.tries import Tries

log = structlog.get_logger(__name__)
T = TypeVar("T")

BUGS_IN_A_ROW = 20
LOST_ATTEMPTS = 3
"""Attempts at an event that no worker lived to end, after which it is dead-lettered."""
_SUSPECTS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""Suspects are reacted to one at a time in a process: if it dies again, only the culprit is charged."""
RELEASE_S = 5.0
LATE = 2
"""Tries of an event whose reaction does not end in time, the one in a group counted: no event holds its place for longer than so many deadlines."""


@dataclass(slots=True, eq=False)
class Work:
    """One record on its way through the stage."""

    stored: StoredRecord
    counted: Counted | None = None
    statements: list[Statement] = field(default_factory=list)
    burial: Burial | None = None
    attempts: int = 0
    lost: int = 0
    """Attempts that were noted before, and that no worker has ended."""
    noted: bool = False
    """Whether its claim noted an attempt, which ends when it is finished or released."""
    late: int = 0
    """Tries that did not end in time."""
    left: bool = False
    """To another program."""

    @property
    def is_suspect(self) -> bool:
        """Whether it may have ended workers. Fewer unended attempts say little: whatever waits in a worker that is killed has one."""
        return self.lost >= NOTED_BY_CLAIMS


@dataclass(frozen=True, slots=True)
class Patience:
    """Waiting times in seconds between tries: doubling from `first` to `most`."""

    first: float = 0.2
    most: float = 15.0

    def pause(self, attempt: int) -> float:
        return min(self.most, self.first * 2.0 ** min(attempt, 16))


class Runner:
    """One stage of one generation. `claim`, `react` and `finish` are called by partitions, many at a time. They raise FatalError only."""

    def __init__(
        self,
        stage: Stage,
        ledger: Ledger,
        event_log: EventLog,
        ports: Ports,
        publisher: Publisher,
        codec: Codec,
        observer: Observer,
        *,
        patience: Patience | None = None,
        lost_attempts: int = LOST_ATTEMPTS,
    ) -> None:
        self.stage, self.ledger, self.log, self.ports, self.publisher, self.codec = stage, ledger, event_log, ports, publisher, codec
        self.observer = observer
        self.patience, self.lost_attempts = patience or Patience(), lost_attempts
        self.bugs = 0
        self.successes = 0
        self._awaited: dict[object, EngineUnavailable] = {}
        self._noted: Counter[UUID] = Counter()
        """Attempts of this process that have not ended, by event. A copy of an event that comes meanwhile must not take them for lost."""

    @property
    def awaited(self) -> EngineUnavailable | None:
        """What an engine said that some reaction waits for, the longest-waiting one's."""
        return next(iter(self._awaited.values()), None)

    async def claim(self, records: Sequence[StoredRecord]) -> list[Work]:
        """Decode and run the first transaction. What is owed a reaction has `counted`, or is `left`, what cannot be processed has `burial`, the rest is done.
        Ends before the first record that is newer than this program; raises NewerVersion where that is the first of all."""
        works = await self._readable(records)
        readable = [(work, projected) for work in works if (projected := self._projected(work)) is not None]
        await self._claim(readable)
        return works

    async def react(self, works: Sequence[Work]) -> list[Work]:
        """Run the reaction of a group and note its statements or its burial on each. A failing group is halved until the culprit stands alone.
        Returns those of which nothing is noted, since their group did not end in time: each is to be tried alone, and none need wait for another."""
        suspects = [work for work in works if work.is_suspect]
        if suspects and len(works) > 1:
            parts = [list(part) for _, part in groupby(works, lambda work: work if work.is_suspect else None)]
            return [late for part in parts for late in await self.react(part)]
        async with _SUSPECTS.setdefault(asyncio.get_running_loop(), asyncio.Lock()) if suspects else nullcontext():
            error = await self._attempt(works)
        if error is None:
            return []
        if len(works) == 1:
            self._bury(works[0], error)
            return []
        if isinstance(error, TimeoutError):
            return list(works)
        middle = len(works) // 2
        return [*await self.react(works[:middle]), *await self.react(works[middle:])]

    async def finish(self, works: Sequence[Work]) -> None:
        """Publish what was stated, wait until the log has it, then run the second transaction."""
        await self._publish(works)
        burials = [work.burial for work in works if work.burial is not None]
        reacted = [work.counted.fact.id for work in works if work.counted is not None and work.burial is None]
        buried: list[EventBuried] = [burial.event for burial in burials]
        if self.stage.react is not None or buried:
            await self._patiently(lambda: self.ledger.settle(self.stage.name, reacted, buried))
        self._forget(work.counted.fact.id for work in works if work.counted is not None and work.noted)
        for work in works:
            self.observer.finished(self.stage.name, work.burial.event.code if work.burial else None)

    async def _publish(self, works: Sequence[Work]) -> None:
        """Facts that are too large, or that the log refuses for good, are found by halving; the event that they follow from is buried."""
        try:
            records = await self._told(works)
            if records:
                await self._patiently(lambda: self.log.append(records))
        except PermanentError as error:
            if len(works) > 1:
                middle = len(works) // 2
                await self._publish(works[:middle])
                await self._publish(works[middle:])
                return
            if works[0].burial is not None:
                raise
            self._bury(works[0], error)
            await self._publish(works)

    async def _told(self, works: Sequence[Work]) -> list[Record]:
        if all(work.counted is not None and work.counted.fact.key is not None for work in works):
            return [record for work in works for record in await self._records(work)]
        return [record for told in await asyncio.gather(*map(self._records, works)) for record in told]

    async def _records(self, work: Work) -> list[Record]:
        burial, said = work.burial, list(work.statements)
        if burial is not None:
            said += await self._patiently(lambda: buried_facts(burial, self.stage, self.ports))
        try:
            return await self._patiently(lambda: self.publisher.records(said))
        except Erased:
            return []

    async def release(self, works: Iterable[Work]) -> None:
        """Take back the attempts that claims noted at what is not finished here."""
        await self._end([work.counted.fact.id for work in works if work.counted is not None and work.noted])

    async def prune(self, topic: str, partition: int, below: int) -> None:
        """A copy of a decision must stay a repeat for ever: it would come after all that was decided since."""
        if self.stage.counts != "door" and self.stage.topic != CONTROL:
            await self._patiently(lambda: self.ledger.prune(self.stage.name, topic, partition, below))

    async def _claim(self, readable: Sequence[tuple[Work, Projected]]) -> None:
        """Rows that the tables refuse are found by halving, like reactions that fail."""
        noted = {projected.fact.id: self._noted[projected.fact.id] for _, projected in readable}
        try:
            claims = await self._patiently(lambda: self.ledger.claim(self.stage.name, self.stage.counts, [projected for _, projected in readable]))
        except FatalError:
            raise
        except Exception as error:
            if len(readable) == 1:
                self._bury(readable[0][0], error)
                return
            middle = len(readable) // 2
            await self._claim(readable[:middle])
            await self._claim(readable[middle:])
        else:
            if readable and self.stage.react is None:
                self.bugs = 0
            for (work, projected), claimed in zip(readable, claims, strict=True):
                event = projected.fact.id
                own = max(noted[event], self._noted[event])
                self._apply(work, projected.fact, replace(claimed, lost=max(0, claimed.lost - own)))
                work.noted = work.counted is not None and claimed.lost < NOTED_BY_CLAIMS
                if work.noted:
                    self._noted[event] += 1
            await self.release([work for work, _ in readable if work.left])

    async def _readable(self, records: Sequence[StoredRecord]) -> list[Work]:
        """Those before the first that is newer than this program, which stops it where it comes first."""
        works: list[Work] = []
        await self._patiently(lambda: self.codec.prepare(records))
        for stored in records:
            try:
                works.append(await self._decoded(stored))
            except NewerVersion:
                if works:
                    break
                raise
        return works

    async def _decoded(self, stored: StoredRecord) -> Work:
        """What was erased is passed over: it has neither a fact nor a burial."""
        work = Work(stored)
        try:
            work.counted = Counted(await self._patiently(lambda: self.codec.decode(stored)), Claim.OWED)
        except Erased as error:
            log.info("passed over", stage=self.stage.name, topic=stored.position.topic, offset=stored.position.offset, detail=error.detail)
        except FatalError:
            raise
        except Exception as error:
            self._bury(work, error)
        return work

    def _projected(self, work: Work) -> Projected | None:
        if work.counted is None:
            return None
        fact = work.counted.fact
        try:
            return Projected(fact, tuple(self.stage.project(fact)))
        except Exception as error:
            self._bury(work, error)
        return None

    def _apply(self, work: Work, fact: Fact[Any], claimed: Claimed) -> None:
        if claimed.claim is Claim.DUPLICATE:
            self._bury(work, DuplicateEventId(f"event {fact.event_id!r} of source {fact.source!r} came before with another payload"))
        elif claimed.claim is Claim.DONE or self.stage.react is None:
            work.counted = None
        else:
            work.counted = Counted(fact, claimed.claim, claimed.flip, claimed.unchanged, claimed.revived, claimed.title)
            work.left = self.stage.left(work.counted)
            work.lost = claimed.lost
            if claimed.lost >= self.lost_attempts and not work.left:
                work.attempts = claimed.lost
                self._bury(work, _worker_lost(claimed.lost))

    async def _attempt(self, works: Sequence[Work]) -> Exception | None:
        """Statements on success; the error that will not go away otherwise."""
        tries = Tries()
        try:
            while True:
                try:
                    await self._once(works)
                except TimeoutError as error:
                    if self._late(works):
                        return error
                except TransientError as error:
                    self.observer.retried(self.stage.name, error.code)
                    if isinstance(error, EngineUnavailable):
                        self._awaited[tries] = error
                    if tries.fail(error, self.successes):
                        return error
                    await asyncio.sleep(self.patience.pause(tries.failed))
                else:
                    self.successes += 1
                    self.bugs = 0
                    return None
        except FatalError:
            raise
        except Exception as error:
            return error
        finally:
            self._awaited.pop(tries, None)

    async def _once(self, works: Sequence[Work]) -> None:
        assert self.stage.react is not None
        counted = [work.counted for work in works if work.counted is not None]
        for work in works:
            work.attempts += 1
        # Other attempts were noted by their claims, so that a revision does not wait here while a later one goes on.
        suspects = [work.counted.fact.id for work in works if work.counted is not None and work.is_suspect]
        self._noted.update(suspects)
        try:
            if suspects:
                await self._patiently(lambda: self.ledger.begin(self.stage.name, suspects))
            async with asyncio.timeout(self.stage.deadline_s):
                statements = await self.stage.react(counted, self.ports)
        finally:
            await self._end(suspects)
        by_cause: dict[Any, list[Statement]] = {}
        for statement in statements:
            by_cause.setdefault(statement.cause.id, []).append(statement)
        for work in works:
            work.statements = by_cause.get(work.counted.fact.id, []) if work.counted else []

    async def _end(self, events: Sequence[UUID]) -> None:
        """End an attempt at each event, also where it was cancelled. Closing a partition does not wait for a lost database: the attempt counts as lost."""
        self._forget(events)
        if events:
            with suppress(TransientError, TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await self.ledger.release(self.stage.name, events)

    def _forget(self, events: Iterable[UUID]) -> None:
        for event in events:
            self._noted[event] -= 1
            if self._noted[event] <= 0:
                del self._noted[event]

    def _late(self, works: Sequence[Work]) -> bool:
        """Whether it is over, alone or together: the next try might take as long, and others wait for it."""
        self.observer.retried(self.stage.name, "TIMEOUT")
        for work in works:
            work.late += 1
        return len(works) > 1 or works[0].late >= LATE

    def _bury(self, work: Work, error: Exception) -> None:
        known = isinstance(error, AnabranchError | TimeoutError)
        if not known:
            self._count_bug(error)
        fact = work.counted.fact if work.counted else None
        work.statements = []
        work.burial = Burial.of(work.stored, fact, self.stage, self._generation(), error, max(1, work.attempts))
        log.warning("event buried", stage=self.stage.name, fact=str(fact.id) if fact else None, code=work.burial.event.code, detail=work.burial.event.detail)

    def _count_bug(self, error: Exception) -> None:
        self.bugs += 1
        log.error("a bug: the event is buried with its traceback", stage=self.stage.name, error="".join(traceback.format_exception(error)))
        if self.bugs >= BUGS_IN_A_ROW:
            raise FatalError(
                f"stage {self.stage.name}: {BUGS_IN_A_ROW} events in a row ended in a bug; the last one: {error!r}", code="TOO_MANY_BUGS"
            ) from error

    def _generation(self) -> str | None:
        return self.publisher.generation.name if self.publisher.generation and not self.stage.shared else None

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """A lost Postgres or log is waited for; nobody knows whether the lost call was committed, and calling it again is right in either case."""
        attempt = 0
        while True:
            try:
                return await call()
            except TransientError as error:
                attempt += 1
                self.observer.retried(self.stage.name, error.code)
                log.warning("waiting", stage=self.stage.name, code=error.code, detail=error.detail, attempt=attempt)
                await asyncio.sleep(self.patience.pause(attempt))


def _worker_lost(attempts: int) -> PermanentError:
    return PermanentError(
        f"{attempts} workers were killed or expelled while they processed this event, and none ended its attempt",
        code="WORKER_LOST",
        remedy="Look at the workers' logs for what ended them (memory, a hung engine); then redrive the event, or send the document in smaller files.",
    )
