"""How far each stage has read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from anabranch.composition.storage import Storage
from processors import STAGES
from sql.ages import oldest_waiting
from sql.generations import PgGenerations
from sql.log import PgLog
from streams.hosting import group_name


async def stage_lags(storage: Storage) -> list[dict[str, Any]]:
    """A line a stage of the live generation, its topic's partitions together; `lag` counts records that it has not acknowledged."""
    live = await PgGenerations(storage.pool).live()
    lines = []
    for stage in STAGES:
        topic = live.topics.get(stage.topic, stage.topic) if live else stage.topic
        group = group_name(stage.name, None if stage.shared or live is None else live.name)
        # In this order: where nothing waits, what was acknowledged is all that there was.
        lag = await storage.waiting(group, topic)
        read = await storage.log.acknowledged(group, topic)
        end = sum(following for _, following in (await storage.log.ends(topic)).values())
        lines.append({"stage": stage.name, "topic": topic, "group": group, "lag": lag, "acknowledged": sum(read.values()), "end": end})
    return lines


async def oldest_in(storage: Storage, group: str, topic: str) -> datetime | None:
    """When the log took in the oldest record that the group has not acknowledged."""
    if isinstance(storage.log, PgLog):
        return await oldest_waiting(storage.pool, group, topic)
    ends, read = await storage.log.ends(topic), await storage.log.acknowledged(group, topic)
    start = {partition: max(first, read.get(partition, first)) for partition, (first, _) in ends.items()}
    end = {partition: min(start[partition] + 1, following) for partition, (_, following) in ends.items()}
    return min([stored.appended_at async for stored in storage.log.read(topic, start, end)], default=None)
