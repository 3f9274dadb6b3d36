"""How far each stage has read."""

from __future__ import annotations

from typing import Any

from anabranch.composition.storage import Storage
from processors import STAGES
from sql.generations import PgGenerations
from streams.hosting import group_name


async def stage_lags(storage: Storage) -> list[dict[str, Any]]:
    """A line a stage of the live generation, its topic's partitions together; `lag` counts records that it has not acknowledged."""
    live = await PgGenerations(storage.pool).live()
    lines = []
    for stage in STAGES:
        topic = live.topics.get(stage.topic, stage.topic) if live else stage.topic
        group = group_name(stage.name, None if stage.shared or live is None else live.name)
        read = await storage.log.acknowledged(group, topic)
        end = sum(following for _, following in (await storage.log.ends(topic)).values())
        lines.append({"stage": stage.name, "topic": topic, "lag": await storage.waiting(group, topic), "acknowledged": sum(read.values()), "end": end})
    return lines
