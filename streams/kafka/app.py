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

from streams.kafka.assignment import Assignment
from streams.kafka.client import go_back, look_after, seek_to_unread

_log = logging.getLogger(__name__)
_PAUSED_POLL_S = 0.02
_LIVE_S = 0.5
_IDLE_LOOKS = 20
_STILL_S = 120.0
"""So long nothing flows at most, whatever the reason: a rebalance, even one after the other, is over by then."""
_WITHOUT_END_S = 1e9
"""Faust takes a seek that was not done in time for its own end, and nothing is resumed any more. aiokafka tries for as long as the broker is away."""
_NO_ENVIRONMENT = "ANABRANCH_FAUST_"
"""Faust would take APP_VERSION, BROKER_URL and the like from the environment, whoever they are meant for, before what it is told here."""
_NONE_OF_OURS = {TP("", -1)}
"""aiokafka takes an empty set for all partitions."""


class FetchingThread(WorkerThread):
    def __init__(self, service: Any, **kwargs: Any) -> None:
        super().__init__(service, **kwargs)
        self.daemon = True  # a process that has to end does not wait for a broker


class StageConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread that fetches and sends heartbeats, however busy the event loop is."""

    app: StageApp
    mundane_level = "debug"
    Worker = FetchingThread

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """With its queue of calls, which both threads would make on demand: where they do it at once, one calls into a queue that nobody empties."""
        super().__init__(*args, **kwargs)
        self._method_queue = MethodQueue(loop=self.thread_loop, beacon=self.beacon)

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(**self.app.consumer_arguments)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        assignment, epoch = self.app.assignment, self.app.assignment.epoch
        reached = await assignment.reached()
        committed, first = await self.call_thread(seek_to_unread, self._ensure_consumer(), reached)
        if assignment.epoch == epoch:
            assignment.starts(first)
        return dict(committed)

    async def sign_of_life(self) -> Mapping[TP, int]:
        """As `look_after` says."""
        return {} if self._consumer is None else dict(await self.call_thread(look_after, self._consumer))

    async def go_back(self, tp: TP, offset: int) -> int:
        return int(await self.call_thread(go_back, self._ensure_consumer(), tp, offset))

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


class Unremembered(dict[TP, int | None]):
    """Of what was read last. Faust drops what comes again; here an assignment does."""

    def __getitem__(self, tp: TP) -> None:
        return None


class StageConsumer(driver.Consumer):
    app: StageApp
    _thread: StageConsumerThread
    mundane_level = "debug"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.noting: set[asyncio.Future[None]] = set()
        self._read_offset = Unremembered()

    def _new_consumer_thread(self) -> StageConsumerThread:
        return StageConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """In the tables first: they never know less than the group has committed, unless they are from a backup."""
        epoch = self.app.assignment.epoch
        if not await self.app.assignment.note(offsets):
            if epoch == self.app.assignment.epoch:
                self._acknowledge_again(offsets)
            return False
        committed: bool = await super()._commit(offsets)
        if committed:
            self.app.assignment.committed(offsets)
        return committed

    def _acknowledge_again(self, offsets: Mapping[TP, int]) -> None:
        """Faust forgets acknowledgements that it has tried to commit."""
        for tp, offset in offsets.items():
            if offset - 1 not in self._acked_index[tp]:
                self._acked[tp].append(offset - 1)
                self._acked_index[tp].add(offset - 1)

    async def _commit_offsets(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:
        """Faust takes for committed what the group refused, too. A refusal that comes when the partitions have been assigned anew would make it
        pass over the acknowledgements of all that is read again, and the stage would lag for ever."""
        committed: bool = await super()._commit_offsets(offsets, start_new_transaction)
        if not committed:
            for tp in offsets:
                self._committed_offset.pop(tp, None)
        return committed

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
            self.app.assignment.stands_still()

    @Service.task
    async def _live(self) -> None:
        """Faust does not fetch while partitions go and come, and aiokafka takes that for a member that hangs: it leaves the group, and does not join again."""
        idle, flowed = 0, self.loop.time()
        while not self.should_stop:
            fetched = await self._sign_of_life()
            if self.flow_active:
                self.app.assignment.look(fetched)
            if self.flow_active and self._has_place and not self.app.fetching_ended:
                flowed = self.loop.time()
            idle = 0 if self.flow_active or self.app.rebalancing or not fetched else idle + 1
            if idle == _IDLE_LOOKS or self.loop.time() - flowed > _STILL_S:
                self.app.assignment.stands_still()
            await self.sleep(_LIVE_S)

    async def _sign_of_life(self) -> Mapping[TP, int]:
        """Of a client that waits for its broker in everything that it does, none comes."""
        try:
            async with asyncio.timeout(_STILL_S):
                return await self._thread.sign_of_life()
        except TimeoutError:
            self.app.assignment.stands_still()
            return {}

    def resume_flow(self) -> None:
        """Where a rebalance meets the end of the one before, Faust resumes in its middle, and empties its queues when it resumes once more."""
        if self._has_place:
            super().resume_flow()

    @property
    def _has_place(self) -> bool:
        """Whether the group has given it partitions, and they are set to the places where they start; or it has none to give."""
        return self.app.assignment.is_ready or (self.app.assignment.epoch > 0 and not self.assignment())

    def _note(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self.noting.add(task)
        task.add_done_callback(self.noting.discard)

    async def _wait_next_records(self, timeout: float) -> tuple[Any, set[TP]]:
        if not self.flow_active:
            await self.wait_first(self.can_resume_flow.wait())
        # Not Faust's own set, which is emptied on revocation while a fetch waits with it: that would take in all that is assigned next, and drop it here.
        active = set(self._get_active_partitions())
        paused = len(active) < len(self.assignment())
        records = await self._getmany(active or _NONE_OF_OURS, _PAUSED_POLL_S if paused else timeout)
        return records, active

    def read_again(self, tp: TP, offset: int) -> asyncio.Future[int]:
        _log.info("%s is read again from %d", tp, offset)
        return asyncio.ensure_future(self._thread.go_back(tp, offset))

    def passed_over(self, tp: TP, first: int, until: int) -> None:
        self._note(super()._add_gap(tp, first, until - 1))

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Faust takes for acknowledged whatever it has not seen; here it may be read again."""

    def close(self) -> None:
        """Faust asks for this when a rebalance meets a stop, and would close the client from the wrong thread; stopping closes it anyway."""

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Faust calls a partition that has not committed for minutes an error; a slow model is none."""


class StageTransport(driver.Transport):
    Consumer = StageConsumer


class ReadOnly(BootStrategy):
    """No web server, and no producer: facts are published by the log."""

    enable_kafka_producer = False
    enable_web = False


class NoTables(TableManager):
    mundane_level = "debug"

    async def on_start(self) -> None:
        """As Faust's, less the second in which tables may be declared: there are none."""
        await self._update_channels()
        await self.recovery.start()


class StageApp(faust.App):
    """A member of a consumer group. `consumer_arguments` are aiokafka's."""

    BootStrategy = ReadOnly
    mundane_level = "debug"

    def __init__(self, group: str, topic: str, assignment: Assignment, consumer_arguments: dict[str, Any]) -> None:
        self.assignment = assignment
        self.consumer_arguments = consumer_arguments
        super().__init__(
            group,
            env_prefix=_NO_ENVIRONMENT,
            broker="aiokafka://" + consumer_arguments["bootstrap_servers"].replace(",", ";aiokafka://"),
            loop=asyncio.get_running_loop(),
            key_serializer="raw",
            value_serializer="raw",
            topic_disable_leader=True,
            topic_allow_declare=False,
            stream_wait_empty=False,
            broker_commit_interval=1.0,
            broker_session_timeout=consumer_arguments["session_timeout_ms"] / 1000,
            broker_request_timeout=_WITHOUT_END_S,
            broker_rebalance_timeout=consumer_arguments["rebalance_timeout_ms"] / 1000,
            web_enabled=False,
            TableManager=NoTables,
        )
        self.agent(self.topic(topic, key_type=bytes, value_type=bytes), name=f"{group}-reader")(self._read)

    async def _read(self, stream: Any) -> None:
        events: AsyncIterable[Any] = stream.noack().events()
        async for event in events:
            self.assignment.take(event.message)

    @property
    def fetching_ended(self) -> bool:
        return self._fetcher.started and not self._fetcher.should_stop and self._fetcher._shutdown.is_set()

    def _new_transport(self) -> StageTransport:
        return StageTransport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """No tables, hence no folders."""
