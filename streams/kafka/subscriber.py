"""`Subscriber` on Kafka: each subscription runs a Faust app, several in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from schemas.errors import LogUnavailable, TransientError
from schemas.ports.consumers import NoOffsetStore, OffsetStore
from schemas.ports.log import OpenSink, Subscription
from streams.kafka.assignment import PartitionAssignment
from streams.kafka.client import KafkaClientSettings, install_log_filters, translate_aiokafka_error
from streams.kafka.faust_app import FaustApp

log = structlog.get_logger(__name__)
_RETRY_DELAY_S = 1.0
_STOP_TIMEOUT_S = 10.0
_CANCEL_TIMEOUT_S = 2.0
_HEARTBEAT_INTERVAL_MS = 500
"""Members learn of a rebalance from their next heartbeat, and a stop during a rebalance waits as
long.
"""
_REBALANCE_TIMEOUT_MS = 30_000
# The broker holds a join request for up to the rebalance time-out. A member that gives up earlier
# joins a second time, and its first, abandoned membership delays the next rebalance.
_REQUEST_MARGIN_MS = 10_000
# A starting broker may list no topics. A group leader that sees none assigns nothing until it
# refreshes.
_METADATA_MAX_AGE_MS = 15_000
_MAX_POLL_RECORDS = 100
"""Messages of a fetch that are delivered before a full sink can stop the rest."""


class FaustSubscriber:
    """A `Subscriber` on Kafka.

    A killed worker loses its partitions after `session_timeout_s`; a slow one never does, since
    heartbeats have a thread of their own. If `offset_store` is behind the group's committed offset,
    reading starts at the stored one.
    """

    def __init__(
        self,
        settings: KafkaClientSettings,
        *,
        session_timeout_s: float = 20.0,
        max_poll_interval_s: float = 300.0,
        offset_store: OffsetStore | None = None,
    ) -> None:
        self._settings = settings
        self._offset_store = offset_store or NoOffsetStore()
        self._session_timeout_s = session_timeout_s
        self._max_poll_interval_s = max_poll_interval_s
        install_log_filters()

    def subscribe(self, group: str, topic: str, open_sink: OpenSink) -> Subscription:
        # On the cluster, groups carry the topic prefix too.
        prefix = self._settings.topic_prefix
        return FaustSubscription(
            prefix + group,
            prefix + topic,
            partial(PartitionAssignment, topic, open_sink, group, self._offset_store),
            self.build_consumer_arguments(prefix + group),
        )

    def build_consumer_arguments(self, group: str) -> dict[str, Any]:
        """Build the arguments of `AIOKafkaConsumer` for a member of a group (name with prefix)."""
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
            # Not Faust's own assignor, which also distributes tables; there are none.
            "partition_assignment_strategy": [RoundRobinPartitionAssignor],
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
            "max_poll_records": _MAX_POLL_RECORDS,
            "fetch_max_bytes": 16 * 1024 * 1024,
        }


@dataclass(frozen=True, slots=True)
class FaustSubscription:
    """A `Subscription` on Kafka. Call `run` once at a time."""

    _group: str
    _cluster_topic: str
    _create_assignment: Callable[[], PartitionAssignment]
    _consumer_arguments: dict[str, Any]

    async def run(self) -> None:
        """See `Subscription.run`. Also raises errors of a sink, which are bugs."""
        while True:
            try:
                await self._consume()
            except TransientError as error:
                log.warning(
                    "subscription_restarted",
                    topic=self._cluster_topic,
                    group=self._group,
                    code=error.code,
                    detail=error.detail,
                )
                await asyncio.sleep(_RETRY_DELAY_S)

    async def _consume(self) -> None:
        assignment = self._create_assignment()
        app = FaustApp(self._group, self._cluster_topic, assignment, self._consumer_arguments)
        app_task = asyncio.create_task(_run_app(app))
        try:
            await asyncio.wait({app_task, assignment.failure}, return_when=asyncio.FIRST_COMPLETED)
            # The assignment's failure first: it is the cause if both ended.
            if assignment.failure.done():
                assignment.failure.result()
            elif app_task.cancelled():
                raise LogUnavailable(f"The Faust app of {self._cluster_topic} was cancelled.")
            else:
                try:
                    app_task.result()
                except Exception as error:
                    raise translate_aiokafka_error(
                        error, f"Reading {self._cluster_topic} as {self._group} failed"
                    ) from error
        finally:
            # shield: a cancelled stop would leave the fetch thread and the group membership behind.
            await asyncio.shield(_stop_app(app, app_task, assignment))


async def _run_app(app: FaustApp) -> None:
    """Run the app until it ends, and raise its error."""
    await app.start()
    await app.wait_until_stopped()
    raise app.crash_reason or LogUnavailable("The Faust app stopped without an error.")


async def _stop_app(
    app: FaustApp, app_task: asyncio.Task[None], assignment: PartitionAssignment
) -> None:
    await assignment.close()  # first, so that the app's stop commits what the sinks acknowledged
    stop_task = asyncio.create_task(app.stop())
    # With a time-out: during a rebalance some of Faust's tasks swallow their cancellation.
    _, unfinished_tasks = await asyncio.wait({stop_task, app_task}, timeout=_STOP_TIMEOUT_S)
    for task in unfinished_tasks:
        task.cancel()
    if unfinished_tasks:
        await asyncio.wait(unfinished_tasks, timeout=_CANCEL_TIMEOUT_S)
        # The last acknowledgements may be uncommitted; their records are then read again.
        log.warning("subscription_stop_timed_out", timeout_s=_STOP_TIMEOUT_S)
    elif (error := stop_task.exception()) is not None:
        log.warning("subscription_stop_failed", error=repr(error))
    # Retrieve exceptions that were raised or logged already, so that asyncio does not log them.
    if app_task.done() and not app_task.cancelled():
        app_task.exception()
    if assignment.failure.done():
        assignment.failure.exception()
