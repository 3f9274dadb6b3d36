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


async def seek_to_unread(consumer: AIOKafkaConsumer, reached: Mapping[int, int]) -> tuple[Mapping[TP, int | None], Mapping[TP, int]]:
    """To the first record not yet acknowledged, or not yet `reached` where the tables are behind. aiokafka's `seek_to_committed` leaves a partition where it is if the
    group has committed nothing of it. Returns what counts as committed, and where each partition is read from."""
    committed: dict[TP, int | None] = dict(await consumer.seek_to_committed())
    await _surely_uncommitted(consumer, {tp for tp, offset in committed.items() if offset is None} & consumer.assignment())
    for tp, offset in committed.items():
        if offset and (place := reached.get(tp.partition, offset)) < offset:
            _log.warning("%s is read again from %d to %d: the tables have not seen it", tp, place, offset)
            consumer.seek(tp, place)
            committed[tp] = place
    first = {tp: offset for tp, offset in committed.items() if offset}
    if unread := {tp for tp, offset in committed.items() if not offset} & consumer.assignment():
        first |= await consumer.beginning_offsets(unread)
        await consumer.seek_to_beginning(*unread)
    return committed, first


async def _surely_uncommitted(consumer: AIOKafkaConsumer, unread: Collection[TP]) -> None:
    """A coordinator that refuses the whole question, since it is only coming up or no coordinator any more, seems to aiokafka to know of no offsets."""
    if not unread:
        return
    coordinator = consumer._coordinator
    asked: dict[str, list[int]] = defaultdict(list)
    for tp in unread:
        asked[tp.topic].append(tp.partition)
    response = await coordinator._send_req(OffsetFetchRequest(coordinator.group_id, list(asked.items())))
    if code := getattr(response, "error_code", 0):
        coordinator.coordinator_dead()
        raise for_code(code)(f"the offsets of group {coordinator.group_id}")
    told = [partition for _, partitions in response.topics for partition, offset, *_ in partitions if offset > 0]
    if told:
        raise LogUnavailable(f"Kafka did not tell at first what group {coordinator.group_id} has read of partitions {told}.")


async def look_after(consumer: AIOKafkaConsumer) -> Mapping[TP, int]:
    """As if something had been fetched. Returns the offset after the last one that was, by partition. Raises what went wrong behind the scenes: aiokafka tells it
    only to those who fetch, or to nobody, and stands still."""
    coordinator = consumer._coordinator
    if coordinator is not None and not coordinator._closing.done():
        for work in (coordinator._coordination_task, consumer._fetcher.error_future, consumer._client._sync_task):
            if work is not None and work.done():
                raise _end_of(work)
        coordinator.check_errors()
    with consumer._subscription.fetch_context():
        states = {tp: consumer._subscription.subscription.assignment.state_value(tp) for tp in consumer.assignment()}
    return {tp: state.position for tp, state in states.items() if state.has_valid_position}


def _end_of(work: asyncio.Task[None]) -> BaseException:
    return (None if work.cancelled() else work.exception()) or LogUnavailable("the client's work was broken off by what it waited for")


async def go_back(consumer: AIOKafkaConsumer, tp: TP, offset: int) -> int:
    """Returns up to where there may be something under way still."""
    if tp not in consumer.assignment():
        return offset
    end: int = await consumer.position(tp)
    consumer.seek(tp, offset)
    return end or offset
