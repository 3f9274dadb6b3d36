"""Functions that aiokafka's clients lack. All of them run on the thread of its event loop."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from faust.types import TP

from schemas.errors import LogUnavailable

log = structlog.get_logger(__name__)
_CANCELLED_START_TIMEOUT_S = 10.0


async def start_client(
    start: Coroutine[Any, Any, None], stop: Callable[[], Awaitable[None]]
) -> None:
    """Start a client. Stop it if that fails or is cancelled.

    aiokafka does not close its first connection if it is cancelled while it waits for the metadata.
    A cancelled start therefore continues until it ends, for ten seconds at most.
    """
    start_task = asyncio.create_task(start)
    try:
        await asyncio.shield(start_task)
    except BaseException:
        try:
            await asyncio.wait({start_task}, timeout=_CANCELLED_START_TIMEOUT_S)
        finally:  # also if it is cancelled again
            start_task.cancel()
            with suppress(Exception):
                await stop()
        raise


async def seek_to_first_unread(
    consumer: AIOKafkaConsumer, stored_offsets: Mapping[int, int]
) -> tuple[Mapping[TP, int | None], Mapping[TP, int]]:
    """Seek each partition to its committed offset, or the stored one if lower, or else its first
    record.

    Return the offsets that count as committed (None or 0 if there are none) and the start offset of
    each partition.
    """
    committed_offsets: dict[TP, int | None] = dict(await consumer.seek_to_committed())
    await _check_uncommitted(
        consumer,
        {tp for tp, offset in committed_offsets.items() if offset is None} & consumer.assignment(),
    )
    for tp, offset in committed_offsets.items():
        if offset and (stored_offset := stored_offsets.get(tp.partition, offset)) < offset:
            log.warning(
                "partition_rewound_to_stored_offset",
                topic=tp.topic,
                partition=tp.partition,
                stored=stored_offset,
                committed=offset,
            )
            # The tables were restored or lag: read what they miss; claims skip the rest.
            consumer.seek(tp, stored_offset)
            committed_offsets[tp] = stored_offset
    start_offsets = {tp: offset for tp, offset in committed_offsets.items() if offset}
    # aiokafka's `seek_to_committed` does not move a partition without a committed offset.
    if (
        uncommitted := {tp for tp, offset in committed_offsets.items() if not offset}
        & consumer.assignment()
    ):
        start_offsets |= await consumer.beginning_offsets(uncommitted)
        await consumer.seek_to_beginning(*uncommitted)
    return committed_offsets, start_offsets


async def _check_uncommitted(
    consumer: AIOKafkaConsumer, partitions_to_check: Collection[TP]
) -> None:
    """Raise if the coordinator refused the request for these offsets or has offsets for some of
    them.

    A coordinator that is starting, or has lost its role, refuses the whole request. aiokafka
    ignores that error and returns None for each partition, which would be read from its first
    record.
    """
    if not partitions_to_check:
        return
    coordinator = consumer._coordinator
    partitions_by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in partitions_to_check:
        partitions_by_topic[tp.topic].append(tp.partition)
    response = await coordinator._send_req(
        OffsetFetchRequest(coordinator.group_id, list(partitions_by_topic.items()))
    )
    if error_code := getattr(response, "error_code", 0):
        # Look the coordinator up again, or the retry asks the same broker.
        coordinator.coordinator_dead()
        raise for_code(error_code)(f"fetching the offsets of group {coordinator.group_id}")
    committed_partitions = [
        partition
        for _, partitions in response.topics
        for partition, offset, *_ in partitions
        if offset > 0
    ]
    if committed_partitions:
        raise LogUnavailable(
            f"Kafka returned no offsets of group {coordinator.group_id} at first, but has some "
            f"for partitions {committed_partitions}."
        )


async def keep_alive(consumer: AIOKafkaConsumer) -> Mapping[TP, int]:
    """Reset the poll timer as a fetch would. Return, by partition, the offset after the last
    fetched record.

    Raise the error of a background task of the client: aiokafka raises it only in a fetch, or not
    at all, and stalls.
    """
    coordinator = consumer._coordinator
    if coordinator is not None and not coordinator._closing.done():
        for task in (
            coordinator._coordination_task,
            consumer._fetcher.error_future,
            consumer._client._sync_task,
        ):
            if task is not None and task.done():
                # None of these tasks ends while the client works.
                raise (None if task.cancelled() else task.exception()) or LogUnavailable(
                    "A background task of the Kafka client was cancelled."
                )
        coordinator.check_errors()
    # Counts as a poll: max_poll_interval starts again.
    with consumer._subscription.fetch_context():
        states = {
            tp: consumer._subscription.subscription.assignment.state_value(tp)
            for tp in consumer.assignment()
        }
    return {tp: state.position for tp, state in states.items() if state.has_valid_position}


async def seek_back(consumer: AIOKafkaConsumer, tp: TP, offset: int) -> int:
    """Seek to an earlier offset.

    Return the end of the records that were fetched before and may still arrive.
    """
    if tp not in consumer.assignment():
        return offset
    # Read before the seek, which replaces the position.
    inflight_end: int = await consumer.position(tp)
    consumer.seek(tp, offset)
    return inflight_end or offset
