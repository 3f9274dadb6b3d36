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
from schemas.ports.offsets import NoOffsetStore, OffsetStore
from schemas.records import Position, Record, StoredRecord

_log = logging.getLogger(__name__)
MAX_STALLED_CHECKS = 10
"""In a row that find nothing come of what was fetched, before it is read again."""


class FaustMessage(Protocol):
    """A message as Faust gives it; `ack` marks its offset as safe to commit."""

    tp: Any
    offset: int
    timestamp: float
    key: bytes | None
    value: bytes | None
    headers: Any
    generation_id: int | None

    def ack(self, consumer: Any, n: int = 1) -> bool: ...


class FetchControl(Protocol):
    """Fetching of single partitions, as Faust's consumer does it for its own full buffers. Unlike its `pause_partitions`, this loses nothing:
    what is already fetched still comes, and no more is fetched."""

    def on_buffer_full(self, tp: Any) -> None: ...

    def on_buffer_drop(self, tp: Any) -> None: ...

    def refetch_from(self, tp: Any, offset: int) -> asyncio.Future[int]:
        """Go back to this record. Done once what is fetched next begins there, with the offset up to which there may be something under way still."""

    def skip_gap(self, tp: Any, start: int, end: int) -> None:
        """There are no records with these offsets, the last excluded: nobody will acknowledge them."""


class KafkaPartition:
    """The log's side of a partition, from its assignment to its revocation; afterwards it does nothing any more.

    Takes every record in its turn, from the place that reading was set to. Between the broker and here lie a client's fetches and Faust's queues, which are
    emptied while partitions are being assigned: where the next record is missing it is read again. If it is missing once more, there is none: transactions
    leave gaps, and so do compaction and retention."""

    def __init__(self, topic: str, tp: Any, consumer: FetchControl, on_failure: Callable[[Exception], None]) -> None:
        self.topic = topic
        self.number: int = tp.partition
        self._tp = tp
        self._consumer = consumer
        self._sink: Sink | None = None
        self._unacknowledged: deque[FaustMessage] = deque()
        self._on_failure = on_failure
        self._next_offset: int | None = None
        self._gap_offset: int | None = None
        """What came where the next one should have; then what came last since, and the end of what was under way before it was read again."""
        self._last_gap_offset, self._inflight_end = -1, -1
        self._stalled_range: tuple[int, int] | None = None
        """What is wanted next and how far was fetched, at the last look, if that is further; then for how many looks, and for what was gone back."""
        self._stalled_checks, self._refetched_end = 0, -1
        self.committed_offset = 0

    def open(self, open_sink: OpenSink) -> None:
        self._sink = open_sink(self)

    async def close(self) -> None:
        sink, self._sink = self._sink, None
        self._unacknowledged.clear()
        if sink is not None:
            await sink.close()

    def set_start(self, offset: int) -> None:
        """Where reading was set to: the first time counts, as what came since is not wanted again."""
        if self._next_offset is None:
            self._next_offset = offset

    @property
    def has_start(self) -> bool:
        return self._next_offset is not None

    def deliver(self, message: FaustMessage) -> None:
        """What comes before it is known where to start comes again."""
        if self._sink is None or self._next_offset is None or message.offset < self._next_offset or self._is_missing_before(self._next_offset, message.offset):
            return
        self._next_offset, self._gap_offset = message.offset + 1, None
        record = self._build_stored_record(message)
        # Only the offset is needed until it is acknowledged; its bytes are the sink's to keep or drop.
        message.key = message.value = message.headers = None
        self._unacknowledged.append(message)
        self._sink.offer(record)
        if self._sink.is_full:
            self._consumer.on_buffer_full(self._tp)

    def check_progress(self, fetched_end: int) -> None:
        """`fetched` is the offset after the last one that the client has handed over. What was dropped behind the last record that came shows by nothing that
        comes: it is read again. If nothing comes then, nothing is there but marks of transactions."""
        stalled_range = (
            (self._next_offset, fetched_end)
            if self._sink is not None and self._next_offset is not None and self._next_offset < fetched_end and not self._sink.is_full
            else None
        )
        self._stalled_checks = self._stalled_checks + 1 if stalled_range is not None and stalled_range == self._stalled_range else 0
        self._stalled_range = stalled_range
        if stalled_range is None or self._stalled_checks < MAX_STALLED_CHECKS:
            return
        if self._refetched_end == fetched_end:
            self._next_offset = fetched_end
            self._consumer.skip_gap(self._tp, *stalled_range)
        else:
            _log.warning("%s, partition %d: nothing has come of what was fetched, from %d to %d; it is read again", self.topic, self.number, *stalled_range)
            self._refetched_end, self._stalled_checks = fetched_end, 0
            self._consumer.refetch_from(self._tp, stalled_range[0]).add_done_callback(self._on_refetched)

    def _is_missing_before(self, expected_offset: int, offset: int) -> bool:
        """Whether records before this one are still to come. Where offsets go down, or were not under way before, it is read again from there."""
        if offset == expected_offset:
            return False
        is_refetched = self._gap_offset is not None and (offset <= self._last_gap_offset or 0 <= self._inflight_end <= offset)
        self._last_gap_offset = offset
        if is_refetched and offset == self._gap_offset:
            self._consumer.skip_gap(self._tp, expected_offset, offset)
            return False
        if is_refetched or self._gap_offset is None:
            self._gap_offset, self._inflight_end = offset, -1
            self._consumer.refetch_from(self._tp, expected_offset).add_done_callback(self._on_refetched)
        return True

    def _on_refetched(self, refetch: asyncio.Future[int]) -> None:
        if refetch.cancelled() or self._sink is None:
            return
        if isinstance(error := refetch.exception(), Exception):
            self._on_failure(LogUnavailable(f"{self.topic}, partition {self.number}, could not be read again: {error!r}"))
        else:
            self._inflight_end = refetch.result()

    def acknowledge(self, next_offset: int) -> None:
        """In order, each message once: Faust commits past a message that was passed over."""
        while self._unacknowledged and self._unacknowledged[0].offset < next_offset:
            self._unacknowledged.popleft().ack(self._consumer)

    def resume(self) -> None:
        if self._sink is not None:
            self._consumer.on_buffer_drop(self._tp)

    def _build_stored_record(self, message: FaustMessage) -> StoredRecord:
        headers = {name: value or b"" for name, value in message.headers or ()}
        record = Record(self.topic, message.key, message.value, headers)
        return StoredRecord(record, Position(self.topic, self.number, message.offset), _to_datetime(message.timestamp))


def _to_datetime(seconds: float) -> datetime:
    """The broker's time; where somebody else made the topic it may be the producer's, and beyond all calendars."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


class PartitionAssignment:
    """What is assigned between two rebalances. `failed` ends with the first error of a sink: nothing may escape into Faust, which would acknowledge and go on."""

    def __init__(self, topic: str, open_sink: OpenSink, group: str = "", offset_store: OffsetStore | None = None) -> None:
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._topic = topic
        self._open_sink = open_sink
        self._group, self._offset_store = group, offset_store or NoOffsetStore()
        self._generation: int | None = None
        self._partitions: dict[Any, KafkaPartition] = {}
        self.epoch = 0
        """Another one after each beginning and each end."""
        self._is_closed = False
        self._ready_epoch = -1

    @property
    def is_ready(self) -> bool:
        """Whether reading may go on: every partition is set to the place where it starts."""
        return self._ready_epoch == self.epoch

    def begin(self, tps: Iterable[Any], generation: int, consumer: FetchControl) -> None:
        """Nothing is opened any more where a rebalance ends after reading was stopped: nobody would close it."""
        self._generation = generation
        self.epoch += 1
        try:
            for tp in () if self._is_closed else tps:
                self._partitions[tp] = KafkaPartition(self._topic, tp, consumer, self._fail)
                self._partitions[tp].open(self._open_sink)
        except Exception as error:
            self._fail(error)

    def set_starts(self, offsets: Mapping[Any, int]) -> None:
        """Where each partition is read from. One of which that is not told would be read in vain: everything begins again instead."""
        self._ready_epoch = self.epoch
        for tp, offset in offsets.items():
            if tp in self._partitions:
                self._partitions[tp].set_start(offset)
        if partitions_without_start := sorted(partition.number for partition in self._partitions.values() if not partition.has_start):
            self._fail(LogUnavailable(f"It is not known where to begin reading {self._topic}, partitions {', '.join(map(str, partitions_without_start))}."))

    def check_progress(self, fetched_offsets: Mapping[Any, int]) -> None:
        """At each partition, once in a while: up to where was it fetched?"""
        for tp, offset in fetched_offsets.items():
            if tp in self._partitions:
                self._partitions[tp].check_progress(offset)

    def report_stall(self) -> None:
        """Nobody reads on, and nobody is about to: everything begins again."""
        self._fail(LogUnavailable(f"Reading {self._topic} does not go on: no partitions come, or nobody resumes what came."))

    async def fetch_stored_offsets(self) -> dict[int, int]:
        """By partition, as the tables know it: where they are behind what is committed, they have not seen it."""
        return await self._offset_store.fetch_offsets(self._group, self._topic)

    async def store_offsets(self, offsets: Mapping[Any, int]) -> bool:
        """In the tables, before it is committed; whether it was. Another time it may be."""
        try:
            await self._offset_store.store_offsets(self._group, self._topic, {tp.partition: offset for tp, offset in offsets.items()})
        except TransientError as error:
            _log.warning("what is done of %s is acknowledged later: %s", self._topic, error.detail)
            return False
        except AnabranchError as error:
            self._fail(error)
            return False
        return True

    def record_committed(self, offsets: Mapping[Any, int]) -> None:
        """The group's offsets, as the broker has taken them."""
        for tp, offset in offsets.items():
            if tp in self._partitions:
                self._partitions[tp].committed_offset = offset

    async def close(self) -> None:
        """For good."""
        self._is_closed = True
        await self.end()

    async def end(self) -> None:
        """Everything is revoked. Returns when all sinks are closed."""
        self.epoch += 1
        partitions, self._partitions = self._partitions, {}
        for outcome in await asyncio.gather(*(partition.close() for partition in partitions.values()), return_exceptions=True):
            if isinstance(outcome, Exception):
                _log.error("a sink did not close", exc_info=outcome)
                self._fail(outcome)

    def deliver(self, message: FaustMessage) -> None:
        """Hand a message to its partition's sink; what was fetched under another assignment is left for whoever has it now."""
        partition = self._partitions.get(message.tp)
        if partition is None or message.generation_id != self._generation:
            return
        try:
            partition.deliver(message)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)
