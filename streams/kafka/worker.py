"""Reading for stages: consumer groups in Faust apps, several in one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from schemas.errors import LogUnavailable, TransientError
from schemas.ports.log import OpenSink, Subscription
from schemas.ports.reached import Reached, Unnoted
from streams.kafka.app import StageApp
from streams.kafka.assignment import Assignment
from streams.kafka.quiet import quiet
from streams.kafka.refusals import translated
from streams.kafka.settings import KafkaSettings

_log = logging.getLogger(__name__)
_AGAIN_AFTER_S = 1.0
_STOP_S = 10.0
_CANCEL_S = 2.0
_HEARTBEAT_MS = 500
"""Members learn of a rebalance by their next heartbeat; a stop in the middle of one waits that long."""
_REBALANCE_MS = 30_000
_MARGIN_MS = 10_000
"""A broker keeps who joins waiting as long as a rebalance may take. Who gives up before that joins a second time, and the first, whom nobody is, holds up the
next rebalance."""
_METADATA_MS = 15_000
"""A broker that is only coming up may show no topic yet, and who leads the group then gives nobody anything, until the cluster is looked at again."""
_AT_ONCE = 100
"""Messages of a fetch that are handed over before a full sink can stop the rest."""


class FaustSubscriber:
    """A `Subscriber`. A worker that dies without a word is missed after `session_timeout_s`; a slow one never is. Where `reached` is behind what a group has
    committed, it reads again from there."""

    def __init__(self, settings: KafkaSettings, *, session_timeout_s: float = 20.0, max_poll_interval_s: float = 300.0, reached: Reached | None = None) -> None:
        self._settings = settings
        self._reached = reached or Unnoted()
        self._session_timeout_s = session_timeout_s
        self._max_poll_interval_s = max_poll_interval_s
        quiet()

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> Subscription:
        """The group's name on the cluster has the topic prefix too."""
        prefix = self._settings.topic_prefix

        def assignment() -> Assignment:
            return Assignment(topic, open_sink, group, self._reached)

        return FaustSubscription(prefix + group, prefix + topic, assignment, self.consumer_arguments(prefix + group))

    def consumer_arguments(self, group: str) -> dict[str, Any]:
        """Of aiokafka, for a member of this group of the cluster."""
        session_ms = int(self._session_timeout_s * 1000)
        return self._settings.for_aiokafka() | {
            "group_id": group,
            "client_id": group,
            "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": _HEARTBEAT_MS,
            "rebalance_timeout_ms": _REBALANCE_MS,
            "request_timeout_ms": max(_REBALANCE_MS, session_ms) + _MARGIN_MS,
            "metadata_max_age_ms": _METADATA_MS,
            "max_poll_interval_ms": int(self._max_poll_interval_s * 1000),
            "partition_assignment_strategy": [RoundRobinPartitionAssignor],
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
            "max_poll_records": _AT_ONCE,
            "fetch_max_bytes": 16 * 1024 * 1024,
        }


class FaustSubscription:
    """As `Subscription`; runs once at a time."""

    def __init__(self, group: str, cluster_topic: str, assignment: Callable[[], Assignment], consumer_arguments: dict[str, Any]) -> None:
        self._group = group
        self._cluster_topic = cluster_topic
        self._assignment = assignment
        self._consumer_arguments = consumer_arguments

    async def run(self) -> None:
        """As `Subscription.run`; also raises what a sink raises, which is a bug."""
        while True:
            try:
                await self._read()
            except TransientError as error:
                _log.warning("reading of %s by %s was interrupted and begins again: %s", self._cluster_topic, self._group, error.detail)
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def _read(self) -> None:
        assignment = self._assignment()
        app = StageApp(self._group, self._cluster_topic, assignment, self._consumer_arguments)
        ended = asyncio.create_task(_ended(app))
        try:
            await self._until_it_fails(ended, assignment)
        finally:
            await asyncio.shield(_stop(app, ended, assignment))

    async def _until_it_fails(self, ended: asyncio.Task[None], assignment: Assignment) -> None:
        await asyncio.wait({ended, assignment.failed}, return_when=asyncio.FIRST_COMPLETED)
        if assignment.failed.done():
            return assignment.failed.result()
        if ended.cancelled():
            raise LogUnavailable("Faust was broken off by what it waited for")
        try:
            return ended.result()
        except Exception as error:
            raise translated(error, f"reading {self._cluster_topic} as {self._group}") from error


async def _ended(app: StageApp) -> None:
    """Runs the app; raises why it ended."""
    await app.start()
    await app.wait_until_stopped()
    raise app.crash_reason or LogUnavailable("Faust stopped without a reason")


async def _stop(app: StageApp, ended: asyncio.Task[None], assignment: Assignment) -> None:
    """Sinks first: what they acknowledged up to now is then committed. Faust is waited for no longer than is good: in the middle of a rebalance
    some of its tasks take a cancellation for something else."""
    await assignment.close()
    stopping = asyncio.create_task(app.stop())
    _, left = await asyncio.wait({stopping, ended}, timeout=_STOP_S)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=_CANCEL_S)
        _log.warning("the reader did not stop in %g s; what it acknowledged last may be read again", _STOP_S)
    elif (error := stopping.exception()) is not None:
        _log.warning("stopping the reader failed; what it acknowledged last may be read again: %r", error)
    if ended.done() and not ended.cancelled():
        ended.exception()  # raised already, or the end that was asked for
    if assignment.failed.done():
        assignment.failed.exception()  # raised or logged already
