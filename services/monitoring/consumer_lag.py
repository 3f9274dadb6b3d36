"""Lag of each consumer group."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from processors import STAGES, transcribe
from schemas.errors import ConfigurationError
from services.generations.first_generation import FIRST_GENERATION
from services.generations.stage_assignments import (
    StageAssignment,
    assign_stages,
    resolve_topic_generation,
)
from services.storage import Storage
from sql.generations import PgGenerations
from streams.stage_consumer import format_group_name

DOCUMENT_STAGE = transcribe.STAGE.name
"""Consumes for all generations, as shared stages do."""


@dataclass(frozen=True, slots=True)
class ConsumerKey:
    """`generation` is None if the group serves all generations."""

    stage: str
    generation: str | None
    topic: str
    group: str


async def list_consumers(storage: Storage) -> list[ConsumerKey]:
    """List the groups of all generations; before the first generation, those to come.

    Raises DatabaseUnavailable.
    """
    generations = await PgGenerations(storage.pool).fetch_undropped()
    if not generations:
        return [
            ConsumerKey(stage.name, None, stage.topic, format_group_name(stage.name, None))
            for stage in STAGES
        ]
    return [
        _to_consumer_key(assignment)
        for assignment in assign_stages(generations, STAGES, storage.producer_topics)
    ]


def _to_consumer_key(assignment: StageAssignment) -> ConsumerKey:
    reads_all_generations = (
        assignment.stage.serves_all_generations or assignment.stage.name == DOCUMENT_STAGE
    )
    return ConsumerKey(
        assignment.stage.name,
        None if reads_all_generations else assignment.generation.name,
        assignment.topic,
        assignment.group,
    )


async def fetch_stage_lags(storage: Storage) -> list[dict[str, Any]]:
    """Return one line per stage of the live generation: that of the group with the largest lag.

    See `fetch_consumer_lag`.
    """
    live, lines = await PgGenerations(storage.pool).fetch_live(), dict[str, dict[str, Any]]()
    for consumer in await list_consumers(storage):
        if live is None or consumer.generation in (None, live.name):
            line, previous = await fetch_consumer_lag(storage, consumer), lines.get(consumer.stage)
            lines[consumer.stage] = (
                line if previous is None or line["lag"] > previous["lag"] else previous
            )
    return list(lines.values())


async def fetch_consumer_lag(storage: Storage, consumer: ConsumerKey) -> dict[str, Any]:
    """Return `{stage, generation, topic, group, lag, acknowledged, end}`, summed over partitions.

    A generation's own topic that does not exist yet has no lag.
    """
    try:
        return {**asdict(consumer), **await _fetch_offsets(storage, consumer)}
    except ConfigurationError as error:
        if error.code != "NO_TOPIC" or resolve_topic_generation(consumer.topic) == FIRST_GENERATION:
            raise
        return {**asdict(consumer), "lag": 0, "acknowledged": 0, "end": 0}


async def _fetch_offsets(storage: Storage, consumer: ConsumerKey) -> dict[str, int]:
    # In this order: with lag 0, the committed offsets cover every record counted.
    lag = await storage.log.count_pending(consumer.group, consumer.topic)
    acknowledged = await storage.log.fetch_committed_offsets(consumer.group, consumer.topic)
    end = sum(
        following
        for _, following in (await storage.log.fetch_offset_bounds(consumer.topic)).values()
    )
    return {"lag": lag, "acknowledged": sum(acknowledged.values()), "end": end}
