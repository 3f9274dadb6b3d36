"""Faust app for one consumer group: passes the raw messages of one topic to a
`PartitionAssignment`.

It consumes through a Faust agent and commits through Faust's acknowledgements. Faust and aiokafka
would lose records or stall in these cases, which the subclasses below correct:

- Revocation: Faust forgets offsets acknowledged since the last commit. Sinks are closed and offsets
  are committed before the partitions are given up.
- Partitions without a committed offset: Faust does not seek them after a rebalance. They are read
  from their first record.
- Rebalance during a fetch: Faust drops the records. A fetch keeps the set of partitions that it
  started with, and flow resumes for the current assignment only.
- Records dropped in any other way: `assignment` detects the missing offsets and fetches them again.
  If nothing resumes flow, the subscription restarts.
- All partitions paused: aiokafka leaves the group if it is not polled. Polling continues.
- Long rebalances: heartbeats and error checks continue, since aiokafka reports a refused join only
  to a caller that fetches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Mapping
from typing import Any

import faust
import structlog
from aiokafka import AIOKafkaConsumer
from faust.app.base import BootStrategy
from faust.tables import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.services import Service
from mode.threads import MethodQueue, WorkerThread

from streams.kafka.aiokafka_ext import keep_alive, seek_back, seek_to_first_unread
from streams.kafka.assignment import PartitionAssignment

log = structlog.get_logger(__name__)
# How long a resumed partition waits at most before the next fetch includes it.
_PAUSED_POLL_S = 0.02
_KEEP_ALIVE_INTERVAL_S = 0.5
# With the interval above: ten seconds assigned, without a rebalance and without flow.
_MAX_IDLE_CHECKS = 20
_STALL_TIMEOUT_S = 120.0
"""Longest time without flow before the subscription restarts; even consecutive rebalances are
shorter.
"""
# If a seek times out, Faust ends its recovery task for good. aiokafka itself retries while the
# broker is down.
_UNLIMITED_TIMEOUT_S = 1e9
# Without a prefix Faust prefers APP_VERSION, BROKER_URL and the like from the environment over its
# arguments.
_ENVIRONMENT_PREFIX = "ANABRANCH_FAUST_"
# aiokafka's `fetched_records` reads an empty set as "all partitions", so name one that does not
# exist.
_NO_PARTITIONS = {TP("", -1)}


class FetchThread(WorkerThread):
    def __init__(self, service: Any, **kwargs: Any) -> None:
        super().__init__(service, **kwargs)
        # A thread blocked on an unreachable broker must not keep the process alive.
        self.daemon = True


class FaustConsumerThread(driver.AIOKafkaConsumerThread):
    """Fetch and send heartbeats on a thread of its own, however busy the event loop is."""

    app: FaustApp
    mundane_level = "debug"
    Worker = FetchThread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Both threads would create the queue lazily; if they race, calls go into one that is never
        # drained.
        self._method_queue = MethodQueue(loop=self.thread_loop, beacon=self.beacon)

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(**self.app.consumer_arguments)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        assignment, epoch = self.app.assignment, self.app.assignment.epoch
        # On the app's loop, which owns the database pool; the seek itself runs on the fetch thread.
        stored_offsets = await assignment.fetch_stored_offsets()
        committed_offsets, start_offsets = await self.call_thread(
            seek_to_first_unread, self._ensure_consumer(), stored_offsets
        )
        if assignment.epoch == epoch:  # else these offsets belong to an earlier assignment
            assignment.set_starts(start_offsets)
        # Faust takes these as already committed and commits nothing below them.
        return dict(committed_offsets)

    async def keep_alive(self) -> Mapping[TP, int]:
        return (
            {}
            if self._consumer is None
            else dict(await self.call_thread(keep_alive, self._consumer))
        )

    async def seek_back(self, tp: TP, offset: int) -> int:
        return int(await self.call_thread(seek_back, self._ensure_consumer(), tp, offset))

    async def stop(self) -> None:
        # Faust skips a thread that is still starting, which would then run forever.
        while self._thread is not None and self._thread.is_alive() and not self._started.is_set():
            await asyncio.sleep(0.005)
        await super().stop()

    async def on_thread_stop(self) -> None:
        try:
            await super().on_thread_stop()
        finally:  # aiokafka skips this if a task of the consumer ends with an error
            if self._consumer is not None:
                await self._consumer._client.close()

    async def _keepalive2(self) -> None:
        # mode logs an error whenever a busy machine delays this by two seconds, while all works.
        # Consumers that are stalled are reported by `PartitionAssignment`.
        while not self.should_stop:
            await self.sleep(1.1)
            await self._wakeup_timer_in_thread()

    def on_crash(self, msg: str, *fmt: Any, **kwargs: Any) -> None:
        """Do nothing: the app raises the same error, and mode would print it a second time."""

    def _start_thread(self) -> None:
        try:
            super()._start_thread()
        except Exception as error:
            log.debug(
                "fetch_thread_failed", error=repr(error)
            )  # the app crashes with the same error


class NoReadOffsets(dict[TP, int | None]):
    """Empty replacement for Faust's read offsets.

    Faust drops every record below its read offset, also one fetched again on purpose;
    `PartitionAssignment` drops duplicates instead.
    """

    def __getitem__(self, tp: TP) -> None:
        return None


class FaustConsumer(driver.Consumer):
    app: FaustApp
    _thread: FaustConsumerThread
    mundane_level = "debug"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gap_tasks: set[asyncio.Future[None]] = set()
        # After `super().__init__`, which sets Faust's own.
        self._read_offset = NoReadOffsets()

    def _new_consumer_thread(self) -> FaustConsumerThread:
        return FaustConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        # Tables first: only after a restore may they be behind the group's committed offsets.
        epoch = self.app.assignment.epoch
        if not await self.app.assignment.store_offsets(offsets):
            # Unless revoked meanwhile: old acknowledgements would leak into the next assignment.
            if epoch == self.app.assignment.epoch:
                # Faust drops acknowledgements once it has tried to commit them.
                for tp, offset in offsets.items():
                    if offset - 1 not in self._acked_index[tp]:
                        self._acked[tp].append(offset - 1)
                        self._acked_index[tp].add(offset - 1)
            return False
        is_committed: bool = await super()._commit(offsets)
        if is_committed:
            self.app.assignment.record_committed(offsets)
        return is_committed

    async def _commit_offsets(
        self, offsets: Mapping[TP, int], start_new_transaction: bool = True
    ) -> bool:
        # Faust records an offset as committed even if the group refused it. After a rebalance it
        # would then ignore the acknowledgements of every record read again, and the lag would never
        # shrink.
        is_committed: bool = await super()._commit_offsets(offsets, start_new_transaction)
        if not is_committed:
            for tp in offsets:
                self._committed_offset.pop(tp, None)
        return is_committed

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        # Close sinks, then commit, then let Faust go on: it clears all acknowledgements on
        # revocation.
        await self.app.assignment.end()
        await self.commit()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        # Before Faust resumes its flow, so that every partition has a sink when records arrive.
        self.app.assignment.begin(assigned, generation_id, self)
        await super().on_partitions_assigned(assigned, generation_id)

    async def _execute_task(self, task: Awaitable[None]) -> None:
        await super()._execute_task(task)
        # mode swallows a CancelledError that leaks out of something awaited: the commit loop ends
        # silently.
        if not self.should_stop and not self.crashed:
            self.app.assignment.report_stall()

    @Service.task
    async def _run_keep_alive(self) -> None:
        # Faust does not fetch during a rebalance. After max_poll_interval aiokafka leaves the group
        # and never rejoins, since only a fetch would make it.
        idle_checks, last_flow_at = 0, self.loop.time()
        while not self.should_stop:
            fetched_offsets = await self._keep_alive()
            if self.flow_active:
                # Without flow nothing is delivered, which is no stall.
                self.app.assignment.check_progress(fetched_offsets)
            if self.flow_active and self._has_start_offsets and not self.app.has_fetching_ended:
                last_flow_at = self.loop.time()
            idle_checks = (
                0
                if self.flow_active or self.app.rebalancing or not fetched_offsets
                else idle_checks + 1
            )
            if (
                idle_checks == _MAX_IDLE_CHECKS
                or self.loop.time() - last_flow_at > _STALL_TIMEOUT_S
            ):
                self.app.assignment.report_stall()
            await self.sleep(_KEEP_ALIVE_INTERVAL_S)

    async def _keep_alive(self) -> Mapping[TP, int]:
        """Return fetched offsets by partition; empty if the client is blocked on an unreachable
        broker.
        """
        try:
            async with asyncio.timeout(_STALL_TIMEOUT_S):
                return await self._thread.keep_alive()
        except TimeoutError:
            self.app.assignment.report_stall()
            return {}

    def resume_flow(self) -> None:
        # If rebalances overlap, Faust resumes in the middle of the second and clears its queues on
        # the next.
        if self._has_start_offsets:
            super().resume_flow()

    @property
    def _has_start_offsets(self) -> bool:
        """Return whether each assigned partition has its start offset; also true for a member
        without partitions.
        """
        return self.app.assignment.is_ready or (
            self.app.assignment.epoch > 0 and not self.assignment()
        )

    async def _wait_next_records(self, timeout: float) -> tuple[Any, set[TP]]:
        if not self.flow_active:
            await self.wait_first(self.can_resume_flow.wait())
        # A copy: Faust clears its own set on revocation while a fetch still waits with it, and
        # aiokafka would then return records of all partitions assigned next, which Faust drops
        # here.
        active_partitions = set(self._get_active_partitions())
        # Short polls while some are paused, so that a resumed partition is fetched at once.
        has_paused = len(active_partitions) < len(self.assignment())
        records = await self._getmany(
            active_partitions or _NO_PARTITIONS, _PAUSED_POLL_S if has_paused else timeout
        )
        return records, active_partitions

    def refetch_from(self, tp: TP, offset: int) -> asyncio.Future[int]:
        log.info("partition_refetched", topic=tp.topic, partition=tp.partition, offset=offset)
        return asyncio.ensure_future(self._thread.seek_back(tp, offset))

    def skip_gap(self, tp: TP, start: int, end: int) -> None:
        task = asyncio.ensure_future(super()._add_gap(tp, start, end - 1))
        self.gap_tasks.add(task)
        task.add_done_callback(self.gap_tasks.discard)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Do nothing: Faust would acknowledge offsets it has not seen, but they may only be fetched
        again.
        """

    def close(self) -> None:
        """Do nothing: Faust calls it from the wrong thread if a stop meets a rebalance.

        `stop` closes the client.
        """

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: Faust logs an error if a partition does not commit for minutes, as with a
        slow model.
        """


class FaustTransport(driver.Transport):
    Consumer = FaustConsumer


class ConsumerOnlyStrategy(BootStrategy):
    """Start neither web server nor producer: events are published through the log."""

    enable_kafka_producer = False
    enable_web = False


class NoTableManager(TableManager):
    mundane_level = "debug"

    async def on_start(self) -> None:
        # Faust's own waits a second for tables to be declared.
        await self._update_channels()
        await self.recovery.start()


class FaustApp(faust.App):
    """One member of a consumer group. `consumer_arguments` are those of `AIOKafkaConsumer`."""

    BootStrategy = ConsumerOnlyStrategy
    mundane_level = "debug"

    def __init__(
        self,
        group: str,
        topic: str,
        assignment: PartitionAssignment,
        consumer_arguments: dict[str, Any],
    ) -> None:
        self.assignment = assignment
        self.consumer_arguments = consumer_arguments
        super().__init__(
            group,
            env_prefix=_ENVIRONMENT_PREFIX,
            # Faust separates brokers by semicolons. Its `confluent://` driver never subscribes.
            broker="aiokafka://"
            + consumer_arguments["bootstrap_servers"].replace(",", ";aiokafka://"),
            # All apps of the process share the caller's loop.
            loop=asyncio.get_running_loop(),
            # Faust logs and acknowledges a value that it cannot decode; the stage makes it a dead
            # letter.
            key_serializer="raw",
            value_serializer="raw",
            # Faust may neither add a leader topic nor create ours, which have settings of their
            # own.
            topic_disable_leader=True,
            topic_allow_declare=False,
            # By default a rebalance waits for events in flight, possibly longer than its time-out.
            stream_wait_empty=False,
            # Also bounds how often offsets are stored in the tables: they go with each commit.
            broker_commit_interval=1.0,
            broker_session_timeout=consumer_arguments["session_timeout_ms"] / 1000,
            broker_request_timeout=_UNLIMITED_TIMEOUT_S,
            broker_rebalance_timeout=consumer_arguments["rebalance_timeout_ms"] / 1000,
            web_enabled=False,
            TableManager=NoTableManager,
        )
        self.agent(self.topic(topic, key_type=bytes, value_type=bytes), name=f"{group}-reader")(
            self._deliver_messages
        )

    async def _deliver_messages(self, stream: Any) -> None:
        # noack: Faust would acknowledge each event when the loop continues, before the stage has
        # finished it.
        # No `take()`: after one exception it commits the offsets of events that it never delivers.
        events: AsyncIterable[Any] = stream.noack().events()
        async for event in events:
            self.assignment.deliver(event.message)

    @property
    def has_fetching_ended(self) -> bool:
        return (
            self._fetcher.started
            and not self._fetcher.should_stop
            and self._fetcher._shutdown.is_set()
        )

    def _new_transport(self) -> FaustTransport:
        return FaustTransport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Create none: they are for Faust's tables."""
