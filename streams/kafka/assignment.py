"""The partitions assigned to one member of a consumer group, each with its sink."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from schemas.errors import AnabranchError, LogUnavailable, TransientError
from schemas.ports.consumers import NoOffsetStore, OffsetStore
from schemas.ports.log import OpenSink, Sink
from schemas.topics import Position, Record, StoredRecord

log = structlog.get_logger(__name__)
# At one check each 0.5 s (`_KEEP_ALIVE_INTERVAL_S`) this is five seconds.
MAX_STALLED_CHECKS = 10
"""Consecutive checks without delivery of fetched records before they are fetched again."""


class FaustMessage(Protocol):
    """A message from Faust; `ack` marks its offset as safe to commit."""

    tp: Any
    offset: int
    timestamp: float
    key: bytes | None
    value: bytes | None
    headers: Any
    generation_id: int | None

    def ack(self, consumer: Any, n: int = 1) -> bool: ...


class FetchControl(Protocol):
    """Flow control of single partitions."""

    # Faust's own hooks for full buffers. Unlike its `pause_partitions` (2,025 of 20,000 events lost
    # in a test) they still deliver what was already fetched, and only stop further fetches.
    def on_buffer_full(self, tp: Any) -> None: ...

    def on_buffer_drop(self, tp: Any) -> None: ...

    def refetch_from(self, tp: Any, offset: int) -> asyncio.Future[int]:
        """Seek back to this offset.

        The result is the end of the records fetched before, which may still arrive.
        """

    def skip_gap(self, tp: Any, start: int, end: int) -> None:
        """Count offsets from `start` to `end` (exclusive) as acknowledged: they have no records."""


class KafkaPartition:
    """Deliver the records of one partition to its sink, in order and without gaps, until it is
    revoked.

    aiokafka's fetch buffer and Faust's queues lie between the broker and this class, and a
    rebalance clears them. If the next offset is missing, it is fetched again. If it is missing a
    second time, there is no such record: transactions, compaction and retention leave gaps.
    """

    def __init__(
        self, topic: str, tp: Any, consumer: FetchControl, on_failure: Callable[[Exception], None]
    ) -> None:
        self.topic = topic
        self.number: int = tp.partition
        self._tp = tp
        self._consumer = consumer
        self._sink: Sink | None = None
        self._unacknowledged: deque[FaustMessage] = deque()
        self._on_failure = on_failure
        self._next_offset: int | None = None
        self._gap_offset: int | None = None
        """Offset that arrived in place of the next one."""
        self._last_gap_offset = -1
        """Offset that arrived last since the gap was found."""
        self._inflight_end = -1
        """End of the records fetched before the refetch; -1 until the refetch is done."""
        self._stalled_range: tuple[int, int] | None = None
        """Next offset and fetched end at the last check, if records between them are missing."""
        self._stalled_checks = 0
        self._refetched_end = -1
        """Fetched end for which the stalled range was fetched again."""
        self.committed_offset = 0

    def open(self, open_sink: OpenSink) -> None:
        self._sink = open_sink(self)

    async def close(self) -> None:
        # Cleared first: messages that arrive during the close find no sink.
        sink, self._sink = self._sink, None
        # Never acknowledged here: the next owner reads these records again.
        self._unacknowledged.clear()
        if sink is not None:
            await sink.close()

    def set_start(self, offset: int) -> None:
        """Set the first offset to deliver.

        Later calls are ignored: records delivered since must not repeat.
        """
        if self._next_offset is None:
            self._next_offset = offset

    @property
    def has_start(self) -> bool:
        return self._next_offset is not None

    def deliver(self, message: FaustMessage) -> None:
        # Records that arrive before the start offset is known are dropped; the consumer fetches
        # them again.
        if self._sink is None or self._next_offset is None or message.offset < self._next_offset:
            return
        # A gap in the offsets is either a loss in Faust's queues or an offset without a record.
        if self._is_missing_before(self._next_offset, message.offset):
            return
        self._next_offset, self._gap_offset = message.offset + 1, None
        headers = {name: value or b"" for name, value in message.headers or ()}
        record = StoredRecord(
            Record(self.topic, message.key, message.value, headers),
            Position(self.topic, self.number, message.offset),
            _to_datetime(message.timestamp),
        )
        # Until the acknowledgement only the offset is needed; free the bytes, which the sink
        # accounts for.
        message.key = message.value = message.headers = None
        self._unacknowledged.append(message)
        self._sink.offer(record)
        if self._sink.is_full:
            self._consumer.on_buffer_full(self._tp)

    def check_progress(self, fetched_end: int) -> None:
        """Fetch again if records up to `fetched_end` were fetched but have not arrived for several
        checks.

        Records dropped behind the last delivered one cause no gap, so only the lack of progress
        shows them. If nothing arrives after the refetch either, the offsets are transaction markers
        and are skipped.
        """
        stalled_range = (
            (self._next_offset, fetched_end)
            if self._sink is not None
            and self._next_offset is not None
            and self._next_offset < fetched_end
            # A full sink stops fetches on purpose, so no progress is expected.
            and not self._sink.is_full
            else None
        )
        self._stalled_checks = (
            # Any delivery changes the range and restarts the count.
            self._stalled_checks + 1
            if stalled_range is not None and stalled_range == self._stalled_range
            else 0
        )
        self._stalled_range = stalled_range
        if stalled_range is None or self._stalled_checks < MAX_STALLED_CHECKS:
            return
        # Fetched twice and nothing arrived: the offsets hold no records.
        if self._refetched_end == fetched_end:
            # Counted as acknowledged as well, so that commits can pass them.
            self._next_offset = fetched_end
            self._consumer.skip_gap(self._tp, *stalled_range)
        else:
            start, end = stalled_range
            log.warning(
                "fetched_records_not_delivered",
                topic=self.topic,
                partition=self.number,
                start=start,
                end=end,
            )
            self._refetched_end, self._stalled_checks = fetched_end, 0
            self._consumer.refetch_from(self._tp, stalled_range[0]).add_done_callback(
                self._on_refetched
            )

    def _is_missing_before(self, expected_offset: int, offset: int) -> bool:
        """Return whether records before this one must be fetched again or are about to arrive."""
        if offset == expected_offset:
            return False
        # An offset that goes down, or lies behind what was in flight, was fetched after the seek.
        is_refetched = self._gap_offset is not None and (
            offset <= self._last_gap_offset or 0 <= self._inflight_end <= offset
        )
        self._last_gap_offset = offset
        # The same offset arrived again after the seek, so nothing exists before it.
        if is_refetched and offset == self._gap_offset:
            self._consumer.skip_gap(self._tp, expected_offset, offset)
            return False
        # One seek for each gap: records still in flight behind it arrive meanwhile and are dropped.
        if is_refetched or self._gap_offset is None:
            self._gap_offset, self._inflight_end = offset, -1
            self._consumer.refetch_from(self._tp, expected_offset).add_done_callback(
                self._on_refetched
            )
        return True

    def _on_refetched(self, refetch: asyncio.Future[int]) -> None:
        # Revoked meanwhile: the next owner starts at the committed offset.
        if refetch.cancelled() or self._sink is None:
            return
        if isinstance(error := refetch.exception(), Exception):
            self._on_failure(
                LogUnavailable(
                    f"Fetching {self.topic}, partition {self.number}, again failed: {error!r}."
                )
            )
        else:
            self._inflight_end = refetch.result()

    def acknowledge(self, next_offset: int) -> None:
        # In order and each message once: Faust commits past an offset whose acknowledgement is
        # missing.
        while self._unacknowledged and self._unacknowledged[0].offset < next_offset:
            self._unacknowledged.popleft().ack(self._consumer)

    def resume(self) -> None:
        if self._sink is not None:
            self._consumer.on_buffer_drop(self._tp)


def _to_datetime(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # with CreateTime, producers may write any number
        return datetime.fromtimestamp(0, UTC)


class PartitionAssignment:
    """Open and close the sinks of the assigned partitions and route messages to them.

    `failure` gets the first error. No error may escape into a Faust agent: Faust would acknowledge
    the event and continue with the next.
    """

    def __init__(
        self,
        topic: str,
        open_sink: OpenSink,
        group: str = "",
        offset_store: OffsetStore | None = None,
    ) -> None:
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._topic = topic
        self._open_sink = open_sink
        self._group, self._offset_store = group, offset_store or NoOffsetStore()
        self._generation: int | None = None
        self._partitions: dict[Any, KafkaPartition] = {}
        self.epoch = 0
        """Increases with each assignment and each revocation."""
        self._is_closed = False
        self._ready_epoch = -1

    @property
    def is_ready(self) -> bool:
        """Return whether every partition has its start offset."""
        return self._ready_epoch == self.epoch

    def begin(self, tps: Iterable[Any], generation: int, consumer: FetchControl) -> None:
        # Set before any partition opens: `deliver` drops messages of every other generation.
        self._generation = generation
        self.epoch += 1
        try:
            # A rebalance may end after `close`: open nothing then, since no one would close it.
            for tp in () if self._is_closed else tps:
                self._partitions[tp] = KafkaPartition(self._topic, tp, consumer, self._fail)
                self._partitions[tp].open(self._open_sink)
        except Exception as error:
            self._fail(error)

    def set_starts(self, offsets: Mapping[Any, int]) -> None:
        """Set the start offset of each partition.

        Fail if one is missing: its records would all be dropped.
        """
        self._ready_epoch = self.epoch
        for tp, offset in offsets.items():
            if tp in self._partitions:
                self._partitions[tp].set_start(offset)
        if partitions_without_start := sorted(
            partition.number for partition in self._partitions.values() if not partition.has_start
        ):
            self._fail(
                LogUnavailable(
                    f"No start offset for {self._topic}, partitions "
                    f"{', '.join(map(str, partitions_without_start))}."
                )
            )

    def check_progress(self, fetched_offsets: Mapping[Any, int]) -> None:
        for tp, offset in fetched_offsets.items():
            if tp in self._partitions:
                self._partitions[tp].check_progress(offset)

    def report_stall(self) -> None:
        """Fail, so that the subscription restarts: nothing will resume the stopped fetching."""
        self._fail(
            LogUnavailable(
                f"The consumer of {self._topic} is stalled: no partitions are assigned, or "
                "fetching was not resumed."
            )
        )

    async def fetch_stored_offsets(self) -> dict[int, int]:
        """Return the next offset by partition as stored in the tables; behind the group's after a
        restore.
        """
        return await self._offset_store.fetch_offsets(self._group, self._topic)

    async def store_offsets(self, offsets: Mapping[Any, int]) -> bool:
        """Store offsets in the tables before they are committed.

        Return False if that failed and is retried later.
        """
        try:
            await self._offset_store.store_offsets(
                self._group, self._topic, {tp.partition: offset for tp, offset in offsets.items()}
            )
        # Not committed either: the broker's offset must never be ahead of the stored one.
        except TransientError as error:
            log.warning("commit_postponed", topic=self._topic, code=error.code, detail=error.detail)
            return False
        except AnabranchError as error:
            self._fail(error)
            return False
        return True

    def record_committed(self, offsets: Mapping[Any, int]) -> None:
        for tp, offset in offsets.items():
            if tp in self._partitions:
                self._partitions[tp].committed_offset = offset

    async def close(self) -> None:
        """Close all sinks and open no more."""
        self._is_closed = True
        await self.end()

    async def end(self) -> None:
        """Revoke all partitions. Return when all sinks are closed."""
        self.epoch += 1
        # Emptied before the wait, so that no message reaches a sink that is closing.
        partitions, self._partitions = self._partitions, {}
        for outcome in await asyncio.gather(
            *(partition.close() for partition in partitions.values()), return_exceptions=True
        ):
            if isinstance(outcome, Exception):
                log.error("sink_close_failed", topic=self._topic, exc_info=outcome)
                self._fail(outcome)

    def deliver(self, message: FaustMessage) -> None:
        """Deliver a message to the sink of its partition."""
        partition = self._partitions.get(message.tp)
        # Records fetched under an earlier assignment are dropped: the current owner fetches them.
        if partition is None or message.generation_id != self._generation:
            return
        try:
            partition.deliver(message)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)
