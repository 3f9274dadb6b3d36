"""How far each stage has read."""

from __future__ import annotations

from typing import Any

from sql.generations import PgGenerations

from anabranch.composition.storage import Storage
from processors import STAGES
from streams.hosting import group_name


async def stage_lags(storage: Storage) -> list[dict[str, Any]]:
    """A line a stage of the live generation; `lag` counts records that it has not acknowledged."""
    live = await PgGenerations(storage.pool).live()
    lines = []
    for stage in STAGES:
        topic = live.topics.get(stage.topic, stage.topic) if live else stage.topic
        group = group_name(stage.name, None if stage.shared or live is None else live.name)
        ends, read = await storage.log.ends(topic), await storage.log.acknowledged(group, topic)
        waiting = {partition: following - max(first, read.get(partition, first)) for partition, (first, following) in ends.items()}
        end = sum(following for _, following in ends.values())
        lines.append({"stage": stage.name, "topic": topic, "lag": sum(waiting.values()), "acknowledged": sum(read.values()), "end": end, "partitions": waiting})
    return lines
