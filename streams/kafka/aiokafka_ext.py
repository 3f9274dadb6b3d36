"""What is asked of aiokafka's consumer beyond what it offers, on the thread that it lives in."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from faust.types import TP

from schemas.errors import LogUnavailable

_log = logging.getLogger(__name__)


async def seek_to_first_unread(consumer: AIOKafkaConsumer, stored_offsets: Mapping[int, int]) -> tuple[Mapping[TP, int | None], Mapping[TP, int]]:
    """To the first record not yet acknowledged, or not yet `reached` where the tables are behind. aiokafka's `seek_to_committed` leaves a partition where it is if the
    group has committed nothing of it. Returns what counts as committed, and where each partition is read from."""
    committed_offsets: dict[TP, int | None] = dict(await consumer.seek_to_committed())
    await _check_uncommitted(consumer, {tp for tp, offset in committed_offsets.items() if offset is None} & consumer.assignment())
    for tp, offset in committed_offsets.items():
        if offset and (stored_offset := stored_offsets.get(tp.partition, offset)) < offset:
            _log.warning("%s is read again from %d to %d: the tables have not seen it", tp, stored_offset, offset)
            consumer.seek(tp, stored_offset)
            committed_offsets[tp] = stored_offset
    start_offsets = {tp: offset for tp, offset in committed_offsets.items() if offset}
    if uncommitted := {tp for tp, offset in committed_offsets.items() if not offset} & consumer.assignment():
        start_offsets |= await consumer.beginning_offsets(uncommitted)
        await consumer.seek_to_beginning(*uncommitted)
    return committed_offsets, start_offsets


async def _check_uncommitted(consumer: AIOKafkaConsumer, partitions_to_check: Collection[TP]) -> None:
    """A coordinator that refuses the whole question, since it is only coming up or no coordinator any more, seems to aiokafka to know of no offsets."""
    if not partitions_to_check:
        return
    coordinator = consumer._coordinator
    partitions_by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in partitions_to_check:
        partitions_by_topic[tp.topic].append(tp.partition)
    response = await coordinator._send_req(OffsetFetchRequest(coordinator.group_id, list(partitions_by_topic.items())))
    if error_code := getattr(response, "error_code", 0):
        coordinator.coordinator_dead()
        raise for_code(error_code)(f"the offsets of group {coordinator.group_id}")
    committed_partitions = [partition for _, partitions in response.topics for partition, offset, *_ in partitions if offset > 0]
    if committed_partitions:
        raise LogUnavailable(f"Kafka did not tell at first what group {coordinator.group_id} has read of partitions {committed_partitions}.")


async def keep_alive(consumer: AIOKafkaConsumer) -> Mapping[TP, int]:
    """As if something had been fetched. Returns the offset after the last one that was, by partition. Raises what went wrong behind the scenes: aiokafka tells it
    only to those who fetch, or to nobody, and stands still."""
    coordinator = consumer._coordinator
    if coordinator is not None and not coordinator._closing.done():
        for task in (coordinator._coordination_task, consumer._fetcher.error_future, consumer._client._sync_task):
            if task is not None and task.done():
                raise _get_task_error(task)
        coordinator.check_errors()
    with consumer._subscription.fetch_context():
        states = {tp: consumer._subscription.subscription.assignment.state_value(tp) for tp in consumer.assignment()}
    return {tp: state.position for tp, state in states.items() if state.has_valid_position}


def _get_task_error(task: asyncio.Task[None]) -> BaseException:
    return (None if task.cancelled() else task.exception()) or LogUnavailable("the client's work was broken off by what it waited for")


async def seek_back(consumer: AIOKafkaConsumer, tp: TP, offset: int) -> int:
    """Returns up to where there may be something under way still."""
    if tp not in consumer.assignment():
        return offset
    inflight_end: int = await consumer.position(tp)
    consumer.seek(tp, offset)
    return inflight_end or offset
