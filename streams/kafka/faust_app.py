"""Faust, as the stages use it: one app is one consumer group that hands raw messages of one topic to an assignment.

It reads by Faust's agent and commits by Faust's acknowledgements, and sets right what would lose records or stand still:

- sinks are closed and offsets committed *before* partitions go: Faust forgets what was acknowledged since the last commit;
- a partition of which nothing is committed yet is read from its beginning after each rebalance: Faust seeks to what is committed, and passes such ones over;
- a fetch keeps the partitions that it was begun with, and flow is resumed for the assignment of now only: Faust drops what comes in between;
- what is dropped on the way all the same is missed by its number, or by nothing having come of it, and read again (`assignment`); where nobody resumes
  reading, it begins again;
- a paused partition is asked for again at once, and polling goes on while all are paused: the group takes silence for death;
- while partitions go and come, however long that takes, signs of life go on, and what the client cannot tell while nobody fetches is asked for: a join that
  the broker refused would stand still for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Awaitable, Coroutine, Mapping
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer
from faust.app.base import BootStrategy
from faust.tables import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.services import Service
from mode.threads import MethodQueue, WorkerThread

from streams.kafka.aiokafka_ext import keep_alive, seek_back, seek_to_first_unread
from streams.kafka.assignment import PartitionAssignment

_log = logging.getLogger(__name__)
_PAUSED_POLL_S = 0.02
_KEEP_ALIVE_INTERVAL_S = 0.5
_MAX_IDLE_CHECKS = 20
_STALL_TIMEOUT_S = 120.0
"""So long nothing flows at most, whatever the reason: a rebalance, even one after the other, is over by then."""
_UNLIMITED_TIMEOUT_S = 1e9
"""Faust takes a seek that was not done in time for its own end, and nothing is resumed any more. aiokafka tries for as long as the broker is away."""
_ENVIRONMENT_PREFIX = "ANABRANCH_FAUST_"
"""Faust would take APP_VERSION, BROKER_URL and the like from the environment, whoever they are meant for, before what it is told here."""
_NO_PARTITIONS = {TP("", -1)}
"""aiokafka takes an empty set for all partitions."""


class FetchThread(WorkerThread):
    def __init__(self, service: Any, **kwargs: Any) -> None:
        super().__init__(service, **kwargs)
        self.daemon = True  # a process that has to end does not wait for a broker


class FaustConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread that fetches and sends heartbeats, however busy the event loop is."""

    app: FaustApp
    mundane_level = "debug"
    Worker = FetchThread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """With its queue of calls, which both threads would make on demand: where they do it at once, one calls into a queue that nobody empties."""
        super().__init__(*args, **kwargs)
        self._method_queue = MethodQueue(loop=self.thread_loop, beacon=self.beacon)

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(**self.app.consumer_arguments)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        assignment, epoch = self.app.assignment, self.app.assignment.epoch
        stored_offsets = await assignment.fetch_stored_offsets()
        committed_offsets, start_offsets = await self.call_thread(seek_to_first_unread, self._ensure_consumer(), stored_offsets)
        if assignment.epoch == epoch:
            assignment.set_starts(start_offsets)
        return dict(committed_offsets)

    async def keep_alive(self) -> Mapping[TP, int]:
        """As `look_after` says."""
        return {} if self._consumer is None else dict(await self.call_thread(keep_alive, self._consumer))

    async def seek_back(self, tp: TP, offset: int) -> int:
        return int(await self.call_thread(seek_back, self._ensure_consumer(), tp, offset))

    async def stop(self) -> None:
        """Also while it is only just starting, which Faust passes over: the thread would then run for ever."""
        while self._thread is not None and self._thread.is_alive() and not self._started.is_set():
            await asyncio.sleep(0.005)
        await super().stop()

    def on_crash(self, msg: str, *fmt: Any, **kwargs: Any) -> None:
        """The app has the error; printing it too helps nobody."""

    def _start_thread(self) -> None:
        try:
            super()._start_thread()
        except Exception as error:
            _log.debug("the fetching thread ended with what the app crashed of: %r", error)


class NoReadOffsets(dict[TP, int | None]):
    """Of what was read last. Faust drops what comes again; here an assignment does."""

    def __getitem__(self, tp: TP) -> None:
        return None


class FaustConsumer(driver.Consumer):
    app: FaustApp
    _thread: FaustConsumerThread
    mundane_level = "debug"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gap_tasks: set[asyncio.Future[None]] = set()
        self._read_offset = NoReadOffsets()

    def _new_consumer_thread(self) -> FaustConsumerThread:
        return FaustConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """In the tables first: they never know less than the group has committed, unless they are from a backup."""
        epoch = self.app.assignment.epoch
        if not await self.app.assignment.store_offsets(offsets):
            if epoch == self.app.assignment.epoch:
                self._restore_acknowledgements(offsets)
            return False
        is_committed: bool = await super()._commit(offsets)
        if is_committed:
            self.app.assignment.record_committed(offsets)
        return is_committed

    def _restore_acknowledgements(self, offsets: Mapping[TP, int]) -> None:
        """Faust forgets acknowledgements that it has tried to commit."""
        for tp, offset in offsets.items():
            if offset - 1 not in self._acked_index[tp]:
                self._acked[tp].append(offset - 1)
                self._acked_index[tp].add(offset - 1)

    async def _commit_offsets(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:
        """Faust takes for committed what the group refused, too. A refusal that comes when the partitions have been assigned anew would make it
        pass over the acknowledgements of all that is read again, and the stage would lag for ever."""
        is_committed: bool = await super()._commit_offsets(offsets, start_new_transaction)
        if not is_committed:
            for tp in offsets:
                self._committed_offset.pop(tp, None)
        return is_committed

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        await self.app.assignment.end()
        await self.commit()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        self.app.assignment.begin(assigned, generation_id, self)
        await super().on_partitions_assigned(assigned, generation_id)

    async def _execute_task(self, task: Awaitable[None]) -> None:
        """One that ends by a cancellation that was meant for something that it waited for would be missed by nobody: commits, for example."""
        await super()._execute_task(task)
        if not self.should_stop and not self.crashed:
            self.app.assignment.report_stall()

    @Service.task
    async def _run_keep_alive(self) -> None:
        """Faust does not fetch while partitions go and come, and aiokafka takes that for a member that hangs: it leaves the group, and does not join again."""
        idle_checks, last_flow_at = 0, self.loop.time()
        while not self.should_stop:
            fetched_offsets = await self._keep_alive()
            if self.flow_active:
                self.app.assignment.check_progress(fetched_offsets)
            if self.flow_active and self._has_start_offsets and not self.app.has_fetching_ended:
                last_flow_at = self.loop.time()
            idle_checks = 0 if self.flow_active or self.app.rebalancing or not fetched_offsets else idle_checks + 1
            if idle_checks == _MAX_IDLE_CHECKS or self.loop.time() - last_flow_at > _STALL_TIMEOUT_S:
                self.app.assignment.report_stall()
            await self.sleep(_KEEP_ALIVE_INTERVAL_S)

    async def _keep_alive(self) -> Mapping[TP, int]:
        """Of a client that waits for its broker in everything that it does, none comes."""
        try:
            async with asyncio.timeout(_STALL_TIMEOUT_S):
                return await self._thread.keep_alive()
        except TimeoutError:
            self.app.assignment.report_stall()
            return {}

    def resume_flow(self) -> None:
        """Where a rebalance meets the end of the one before, Faust resumes in its middle, and empties its queues when it resumes once more."""
        if self._has_start_offsets:
            super().resume_flow()

    @property
    def _has_start_offsets(self) -> bool:
        """Whether the group has given it partitions, and they are set to the places where they start; or it has none to give."""
        return self.app.assignment.is_ready or (self.app.assignment.epoch > 0 and not self.assignment())

    def _start_gap_task(self, add_gap: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(add_gap)
        self.gap_tasks.add(task)
        task.add_done_callback(self.gap_tasks.discard)

    async def _wait_next_records(self, timeout: float) -> tuple[Any, set[TP]]:
        if not self.flow_active:
            await self.wait_first(self.can_resume_flow.wait())
        # Not Faust's own set, which is emptied on revocation while a fetch waits with it: that would take in all that is assigned next, and drop it here.
        active_partitions = set(self._get_active_partitions())
        has_paused = len(active_partitions) < len(self.assignment())
        records = await self._getmany(active_partitions or _NO_PARTITIONS, _PAUSED_POLL_S if has_paused else timeout)
        return records, active_partitions

    def refetch_from(self, tp: TP, offset: int) -> asyncio.Future[int]:
        _log.info("%s is read again from %d", tp, offset)
        return asyncio.ensure_future(self._thread.seek_back(tp, offset))

    def skip_gap(self, tp: TP, start: int, end: int) -> None:
        self._start_gap_task(super()._add_gap(tp, start, end - 1))

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Faust takes for acknowledged whatever it has not seen; here it may be read again."""

    def close(self) -> None:
        """Faust asks for this when a rebalance meets a stop, and would close the client from the wrong thread; stopping closes it anyway."""

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Faust calls a partition that has not committed for minutes an error; a slow model is none."""


class FaustTransport(driver.Transport):
    Consumer = FaustConsumer


class ConsumerOnlyStrategy(BootStrategy):
    """No web server, and no producer: facts are published by the log."""

    enable_kafka_producer = False
    enable_web = False


class NoTableManager(TableManager):
    mundane_level = "debug"

    async def on_start(self) -> None:
        """As Faust's, less the second in which tables may be declared: there are none."""
        await self._update_channels()
        await self.recovery.start()


class FaustApp(faust.App):
    """A member of a consumer group. `consumer_arguments` are aiokafka's."""

    BootStrategy = ConsumerOnlyStrategy
    mundane_level = "debug"

    def __init__(self, group: str, topic: str, assignment: PartitionAssignment, consumer_arguments: dict[str, Any]) -> None:
        self.assignment = assignment
        self.consumer_arguments = consumer_arguments
        super().__init__(
            group,
            env_prefix=_ENVIRONMENT_PREFIX,
            broker="aiokafka://" + consumer_arguments["bootstrap_servers"].replace(",", ";aiokafka://"),
            loop=asyncio.get_running_loop(),
            key_serializer="raw",
            value_serializer="raw",
            topic_disable_leader=True,
            topic_allow_declare=False,
            stream_wait_empty=False,
            broker_commit_interval=1.0,
            broker_session_timeout=consumer_arguments["session_timeout_ms"] / 1000,
            broker_request_timeout=_UNLIMITED_TIMEOUT_S,
            broker_rebalance_timeout=consumer_arguments["rebalance_timeout_ms"] / 1000,
            web_enabled=False,
            TableManager=NoTableManager,
        )
        self.agent(self.topic(topic, key_type=bytes, value_type=bytes), name=f"{group}-reader")(self._deliver_messages)

    async def _deliver_messages(self, stream: Any) -> None:
        events: AsyncIterable[Any] = stream.noack().events()
        async for event in events:
            self.assignment.deliver(event.message)

    @property
    def has_fetching_ended(self) -> bool:
        return self._fetcher.started and not self._fetcher.should_stop and self._fetcher._shutdown.is_set()

    def _new_transport(self) -> FaustTransport:
        return FaustTransport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """No tables, hence no folders."""
