"""Reading for stages: consumer groups in Faust apps, several in one event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from schemas.errors import LogUnavailable, TransientError
from schemas.ports.log import OpenSink, Subscription
from schemas.ports.offsets import NoOffsetStore, OffsetStore
from streams.kafka.assignment import PartitionAssignment
from streams.kafka.client_settings import KafkaClientSettings
from streams.kafka.errors import translate_aiokafka_error
from streams.kafka.faust_app import FaustApp
from streams.kafka.log_filters import install_log_filters

_log = logging.getLogger(__name__)
_RETRY_DELAY_S = 1.0
_STOP_TIMEOUT_S = 10.0
_CANCEL_TIMEOUT_S = 2.0
_HEARTBEAT_INTERVAL_MS = 500
"""Members learn of a rebalance by their next heartbeat; a stop in the middle of one waits that long."""
_REBALANCE_TIMEOUT_MS = 30_000
_REQUEST_MARGIN_MS = 10_000
"""A broker keeps who joins waiting as long as a rebalance may take. Who gives up before that joins a second time, and the first, whom nobody is, holds up the
next rebalance."""
_METADATA_MAX_AGE_MS = 15_000
"""A broker that is only coming up may show no topic yet, and who leads the group then gives nobody anything, until the cluster is looked at again."""
_MAX_POLL_RECORDS = 100
"""Messages of a fetch that are handed over before a full sink can stop the rest."""


class FaustSubscriber:
    """A `Subscriber`. A worker that dies without a word is missed after `session_timeout_s`; a slow one never is. Where `reached` is behind what a group has
    committed, it reads again from there."""

    def __init__(
        self, settings: KafkaClientSettings, *, session_timeout_s: float = 20.0, max_poll_interval_s: float = 300.0, offset_store: OffsetStore | None = None
    ) -> None:
        self._settings = settings
        self._offset_store = offset_store or NoOffsetStore()
        self._session_timeout_s = session_timeout_s
        self._max_poll_interval_s = max_poll_interval_s
        install_log_filters()

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> Subscription:
        """The group's name on the cluster has the topic prefix too."""
        prefix = self._settings.topic_prefix

        def create_assignment() -> PartitionAssignment:
            return PartitionAssignment(topic, open_sink, group, self._offset_store)

        return FaustSubscription(prefix + group, prefix + topic, create_assignment, self.build_consumer_arguments(prefix + group))

    def build_consumer_arguments(self, group: str) -> dict[str, Any]:
        """Of aiokafka, for a member of this group of the cluster."""
        session_ms = int(self._session_timeout_s * 1000)
        return self._settings.to_aiokafka_arguments() | {
            "group_id": group,
            "client_id": group,
            "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": _HEARTBEAT_INTERVAL_MS,
            "rebalance_timeout_ms": _REBALANCE_TIMEOUT_MS,
            "request_timeout_ms": max(_REBALANCE_TIMEOUT_MS, session_ms) + _REQUEST_MARGIN_MS,
            "metadata_max_age_ms": _METADATA_MAX_AGE_MS,
            "max_poll_interval_ms": int(self._max_poll_interval_s * 1000),
            "partition_assignment_strategy": [RoundRobinPartitionAssignor],
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
            "max_poll_records": _MAX_POLL_RECORDS,
            "fetch_max_bytes": 16 * 1024 * 1024,
        }


class FaustSubscription:
    """As `Subscription`; runs once at a time."""

    def __init__(self, group: str, cluster_topic: str, create_assignment: Callable[[], PartitionAssignment], consumer_arguments: dict[str, Any]) -> None:
        self._group = group
        self._cluster_topic = cluster_topic
        self._create_assignment = create_assignment
        self._consumer_arguments = consumer_arguments

    async def run(self) -> None:
        """As `Subscription.run`; also raises what a sink raises, which is a bug."""
        while True:
            try:
                await self._consume()
            except TransientError as error:
                _log.warning("reading of %s by %s was interrupted and begins again: %s", self._cluster_topic, self._group, error.detail)
                await asyncio.sleep(_RETRY_DELAY_S)

    async def _consume(self) -> None:
        assignment = self._create_assignment()
        app = FaustApp(self._group, self._cluster_topic, assignment, self._consumer_arguments)
        app_task = asyncio.create_task(_run_app(app))
        try:
            await self._wait_for_failure(app_task, assignment)
        finally:
            await asyncio.shield(_stop_app(app, app_task, assignment))

    async def _wait_for_failure(self, app_task: asyncio.Task[None], assignment: PartitionAssignment) -> None:
        await asyncio.wait({app_task, assignment.failure}, return_when=asyncio.FIRST_COMPLETED)
        if assignment.failure.done():
            return assignment.failure.result()
        if app_task.cancelled():
            raise LogUnavailable("Faust was broken off by what it waited for")
        try:
            return app_task.result()
        except Exception as error:
            raise translate_aiokafka_error(error, f"reading {self._cluster_topic} as {self._group}") from error


async def _run_app(app: FaustApp) -> None:
    """Runs the app; raises why it ended."""
    await app.start()
    await app.wait_until_stopped()
    raise app.crash_reason or LogUnavailable("Faust stopped without a reason")


async def _stop_app(app: FaustApp, app_task: asyncio.Task[None], assignment: PartitionAssignment) -> None:
    """Sinks first: what they acknowledged up to now is then committed. Faust is waited for no longer than is good: in the middle of a rebalance
    some of its tasks take a cancellation for something else."""
    await assignment.close()
    stop_task = asyncio.create_task(app.stop())
    _, unfinished_tasks = await asyncio.wait({stop_task, app_task}, timeout=_STOP_TIMEOUT_S)
    for task in unfinished_tasks:
        task.cancel()
    if unfinished_tasks:
        await asyncio.wait(unfinished_tasks, timeout=_CANCEL_TIMEOUT_S)
        _log.warning("the reader did not stop in %g s; what it acknowledged last may be read again", _STOP_TIMEOUT_S)
    elif (error := stop_task.exception()) is not None:
        _log.warning("stopping the reader failed; what it acknowledged last may be read again: %r", error)
    if app_task.done() and not app_task.cancelled():
        app_task.exception()  # raised already, or the end that was asked for
    if assignment.failure.done():
        assignment.failure.exception()  # raised or logged already
