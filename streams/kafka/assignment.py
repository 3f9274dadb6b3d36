"""The partitions that one member of a consumer group has now, each with its sink."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from schemas.errors import AnabranchError, LogUnavailable, TransientError
from schemas.ports.log import OpenSink, Sink
from schemas.ports.reached import Reached, Unnoted
from schemas.records import Position, Record, StoredRecord

_log = logging.getLogger(__name__)
LOOKS = 10
"""In a row that find nothing come of what was fetched, before it is read again."""


class Message(Protocol):
    """A message as Faust gives it; `ack` marks its offset as safe to commit."""

    tp: Any
    offset: int
    timestamp: float
    key: bytes | None
    value: bytes | None
    headers: Any
    generation_id: int | None

    def ack(self, consumer: Any, n: int = 1) -> bool: ...


class Flow(Protocol):
    """Fetching of single partitions, as Faust's consumer does it for its own full buffers. Unlike its `pause_partitions`, this loses nothing:
    what is already fetched still comes, and no more is fetched."""

    def on_buffer_full(self, tp: Any) -> None: ...

    def on_buffer_drop(self, tp: Any) -> None: ...

    def read_again(self, tp: Any, offset: int) -> asyncio.Future[int]:
        """Go back to this record. Done once what is fetched next begins there, with the offset up to which there may be something under way still."""

    def passed_over(self, tp: Any, first: int, until: int) -> None:
        """There are no records with these offsets, the last excluded: nobody will acknowledge them."""


class AssignedPartition:
    """The log's side of a partition, from its assignment to its revocation; afterwards it does nothing any more.

    Takes every record in its turn, from the place that reading was set to. Between the broker and here lie a client's fetches and Faust's queues, which are
    emptied while partitions are being assigned: where the next record is missing it is read again. If it is missing once more, there is none: transactions
    leave gaps, and so do compaction and retention."""

    def __init__(self, topic: str, tp: Any, consumer: Flow, failed: Callable[[Exception], None]) -> None:
        self.topic = topic
        self.number: int = tp.partition
        self._tp = tp
        self._consumer = consumer
        self._sink: Sink | None = None
        self._unacknowledged: deque[Message] = deque()
        self._failed = failed
        self._next: int | None = None
        self._instead: int | None = None
        """What came where the next one should have; then what came last since, and the end of what was under way before it was read again."""
        self._since, self._end = -1, -1
        self._behind: tuple[int, int] | None = None
        """What is wanted next and how far was fetched, at the last look, if that is further; then for how many looks, and for what was gone back."""
        self._looks, self._gone_back_for = 0, -1
        self.kept = 0

    def open(self, open_sink: OpenSink) -> None:
        self._sink = open_sink(self)

    async def close(self) -> None:
        sink, self._sink = self._sink, None
        self._unacknowledged.clear()
        if sink is not None:
            await sink.close()

    def starts(self, offset: int) -> None:
        """Where reading was set to: the first time counts, as what came since is not wanted again."""
        if self._next is None:
            self._next = offset

    @property
    def has_begun(self) -> bool:
        return self._next is not None

    def take(self, message: Message) -> None:
        """What comes before it is known where to start comes again."""
        if self._sink is None or self._next is None or message.offset < self._next or self._lacks(self._next, message.offset):
            return
        self._next, self._instead = message.offset + 1, None
        record = self._stored(message)
        # Only the offset is needed until it is acknowledged; its bytes are the sink's to keep or drop.
        message.key = message.value = message.headers = None
        self._unacknowledged.append(message)
        self._sink.offer(record)
        if self._sink.full:
            self._consumer.on_buffer_full(self._tp)

    def look(self, fetched: int) -> None:
        """`fetched` is the offset after the last one that the client has handed over. What was dropped behind the last record that came shows by nothing that
        comes: it is read again. If nothing comes then, nothing is there but marks of transactions."""
        behind = (self._next, fetched) if self._sink is not None and self._next is not None and self._next < fetched and not self._sink.full else None
        self._looks = self._looks + 1 if behind is not None and behind == self._behind else 0
        self._behind = behind
        if behind is None or self._looks < LOOKS:
            return
        if self._gone_back_for == fetched:
            self._next = fetched
            self._consumer.passed_over(self._tp, *behind)
        else:
            _log.warning("%s, partition %d: nothing has come of what was fetched, from %d to %d; it is read again", self.topic, self.number, *behind)
            self._gone_back_for, self._looks = fetched, 0
            self._consumer.read_again(self._tp, behind[0]).add_done_callback(self._gone_back)

    def _lacks(self, wanted: int, offset: int) -> bool:
        """Whether records before this one are still to come. Where offsets go down, or were not under way before, it is read again from there."""
        if offset == wanted:
            return False
        again = self._instead is not None and (offset <= self._since or 0 <= self._end <= offset)
        self._since = offset
        if again and offset == self._instead:
            self._consumer.passed_over(self._tp, wanted, offset)
            return False
        if again or self._instead is None:
            self._instead, self._end = offset, -1
            self._consumer.read_again(self._tp, wanted).add_done_callback(self._gone_back)
        return True

    def _gone_back(self, going: asyncio.Future[int]) -> None:
        if going.cancelled() or self._sink is None:
            return
        if isinstance(error := going.exception(), Exception):
            self._failed(LogUnavailable(f"{self.topic}, partition {self.number}, could not be read again: {error!r}"))
        else:
            self._end = going.result()

    def acknowledge(self, next_offset: int) -> None:
        """In order, each message once: Faust commits past a message that was passed over."""
        while self._unacknowledged and self._unacknowledged[0].offset < next_offset:
            self._unacknowledged.popleft().ack(self._consumer)

    def resume(self) -> None:
        if self._sink is not None:
            self._consumer.on_buffer_drop(self._tp)

    def _stored(self, message: Message) -> StoredRecord:
        headers = {name: value or b"" for name, value in message.headers or ()}
        record = Record(self.topic, message.key, message.value, headers)
        return StoredRecord(record, Position(self.topic, self.number, message.offset), _moment(message.timestamp))


def _moment(seconds: float) -> datetime:
    """The broker's time; where somebody else made the topic it may be the producer's, and beyond all calendars."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


class Assignment:
    """What is assigned between two rebalances. `failed` ends with the first error of a sink: nothing may escape into Faust, which would acknowledge and go on."""

    def __init__(self, topic: str, open_sink: OpenSink, group: str = "", reached: Reached | None = None) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._topic = topic
        self._open_sink = open_sink
        self._group, self._reached = group, reached or Unnoted()
        self._generation: int | None = None
        self._partitions: dict[Any, AssignedPartition] = {}
        self.epoch = 0
        """Another one after each beginning and each end."""
        self._closed = False
        self._ready = -1

    @property
    def is_ready(self) -> bool:
        """Whether reading may go on: every partition is set to the place where it starts."""
        return self._ready == self.epoch

    def begin(self, tps: Iterable[Any], generation: int, consumer: Flow) -> None:
        """Nothing is opened any more where a rebalance ends after reading was stopped: nobody would close it."""
        self._generation = generation
        self.epoch += 1
        try:
            for tp in () if self._closed else tps:
                self._partitions[tp] = AssignedPartition(self._topic, tp, consumer, self._fail)
                self._partitions[tp].open(self._open_sink)
        except Exception as error:
            self._fail(error)

    def starts(self, offsets: Mapping[Any, int]) -> None:
        """Where each partition is read from. One of which that is not told would be read in vain: everything begins again instead."""
        self._ready = self.epoch
        for tp, offset in offsets.items():
            if tp in self._partitions:
                self._partitions[tp].starts(offset)
        if astray := sorted(partition.number for partition in self._partitions.values() if not partition.has_begun):
            self._fail(LogUnavailable(f"It is not known where to begin reading {self._topic}, partitions {', '.join(map(str, astray))}."))

    def look(self, fetched: Mapping[Any, int]) -> None:
        """At each partition, once in a while: up to where was it fetched?"""
        for tp, offset in fetched.items():
            if tp in self._partitions:
                self._partitions[tp].look(offset)

    def stands_still(self) -> None:
        """Nobody reads on, and nobody is about to: everything begins again."""
        self._fail(LogUnavailable(f"Reading {self._topic} does not go on: no partitions come, or nobody resumes what came."))

    async def reached(self) -> dict[int, int]:
        """By partition, as the tables know it: where they are behind what is committed, they have not seen it."""
        return await self._reached.known(self._group, self._topic)

    async def note(self, offsets: Mapping[Any, int]) -> bool:
        """In the tables, before it is committed; whether it was. Another time it may be."""
        try:
            await self._reached.note(self._group, self._topic, {tp.partition: offset for tp, offset in offsets.items()})
        except TransientError as error:
            _log.warning("what is done of %s is acknowledged later: %s", self._topic, error.detail)
            return False
        except AnabranchError as error:
            self._fail(error)
            return False
        return True

    def committed(self, offsets: Mapping[Any, int]) -> None:
        """The group's offsets, as the broker has taken them."""
        for tp, offset in offsets.items():
            if tp in self._partitions:
                self._partitions[tp].kept = offset

    async def close(self) -> None:
        """For good."""
        self._closed = True
        await self.end()

    async def end(self) -> None:
        """Everything is revoked. Returns when all sinks are closed."""
        self.epoch += 1
        partitions, self._partitions = self._partitions, {}
        for outcome in await asyncio.gather(*(partition.close() for partition in partitions.values()), return_exceptions=True):
            if isinstance(outcome, Exception):
                _log.error("a sink did not close", exc_info=outcome)
                self._fail(outcome)

    def take(self, message: Message) -> None:
        """Hand a message to its partition's sink; what was fetched under another assignment is left for whoever has it now."""
        partition = self._partitions.get(message.tp)
        if partition is None or message.generation_id != self._generation:
            return
        try:
            partition.take(message)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
