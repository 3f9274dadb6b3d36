"""How far each reader has read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from anabranch.composition.genesis import FIRST
from anabranch.composition.readers import Reader, origin, readers
from anabranch.composition.storage import Storage
from processors import STAGES, transcribe
from schemas.errors import ConfigurationError
from sql.ages import oldest_waiting
from sql.generations import PgGenerations
from sql.log import PgLog
from streams.hosting import group_name

DOCUMENTS = transcribe.STAGE.name
"""Reads for all generations, as the shared stages do."""


@dataclass(frozen=True, slots=True)
class ReaderLine:
    """`generation` is None where it reads for all."""

    stage: str
    generation: str | None
    topic: str
    group: str


async def readers_there(storage: Storage) -> list[ReaderLine]:
    """Of all generations that are not dropped; before the first is made, those that will be. Raises DatabaseUnavailable."""
    generations = await PgGenerations(storage.pool).undropped()
    if not generations:
        return [ReaderLine(stage.name, None, stage.topic, group_name(stage.name, None)) for stage in STAGES]
    return [_line(reader) for reader in readers(generations, STAGES, storage.producer_topics)]


def _line(reader: Reader) -> ReaderLine:
    for_all = reader.stage.shared or reader.stage.name == DOCUMENTS
    return ReaderLine(reader.stage.name, None if for_all else reader.generation.name, reader.topic, reader.group)


async def stage_lags(storage: Storage) -> list[dict[str, Any]]:
    """A line a stage, as the live generation has it: of several readers the one that is further behind. See `reader_lag`."""
    live, lines = await PgGenerations(storage.pool).live(), dict[str, dict[str, Any]]()
    for reader in await readers_there(storage):
        if live is None or reader.generation in (None, live.name):
            line, known = await reader_lag(storage, reader), lines.get(reader.stage)
            lines[reader.stage] = line if known is None or line["lag"] > known["lag"] else known
    return list(lines.values())


async def reader_lag(storage: Storage, reader: ReaderLine) -> dict[str, Any]:
    """`{stage, generation, topic, group, lag, acknowledged, end}`, the topic's partitions together; `lag` counts records that the group has not acknowledged. A
    generation's own topic that is not made yet holds none."""
    try:
        return {**asdict(reader), **await _numbers(storage, reader)}
    except ConfigurationError as error:
        if error.code != "NO_TOPIC" or origin(reader.topic) == FIRST:
            raise
        return {**asdict(reader), "lag": 0, "acknowledged": 0, "end": 0}


async def _numbers(storage: Storage, reader: ReaderLine) -> dict[str, int]:
    # In this order: where nothing waits, what was acknowledged is all that there was.
    lag = await storage.waiting(reader.group, reader.topic)
    read = await storage.log.acknowledged(reader.group, reader.topic)
    end = sum(following for _, following in (await storage.log.ends(reader.topic)).values())
    return {"lag": lag, "acknowledged": sum(read.values()), "end": end}


async def oldest_in(storage: Storage, group: str, topic: str) -> datetime | None:
    """When the log took in the oldest record that the group has not acknowledged."""
    if isinstance(storage.log, PgLog):
        return await oldest_waiting(storage.pool, group, topic)
    ends, read = await storage.log.ends(topic), await storage.log.acknowledged(group, topic)
    start = {partition: max(first, read.get(partition, first)) for partition, (first, _) in ends.items()}
    end = {partition: min(start[partition] + 1, following) for partition, (_, following) in ends.items()}
    return min([stored.appended_at async for stored in storage.log.read(topic, start, end)], default=None)
