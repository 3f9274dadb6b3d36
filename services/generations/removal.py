"""Drop a generation: its tables, and the topics that it alone uses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from schemas.generations import Generation
from schemas.ports.log import EventLog
from services.generations.decisions import GenerationDecisions
from sql.dropped_states import record_dropped_states
from sql.generation_removal import begin_generation_drop, remove_generation_tables
from sql.generations import PgGenerations
from sql.pool import Pool
from streams.topics import ACCEPTED, EMBEDDED, RAW

RELEASE_WAIT_S = 2.0
"""Within this, every worker has stopped consuming for the generation."""


@dataclass(frozen=True, slots=True)
class DroppedGeneration:
    """`removed` is false while transaction `held_by` holds a table; workers finish the removal when
    it ends.
    """

    generation: str
    removed: bool
    held_by: dict[str, Any] | None
    topics: tuple[str, ...]


async def remove_generation(
    pool: Pool,
    log: EventLog,
    decisions: GenerationDecisions,
    name: str,
    *,
    release_wait_s: float = RELEASE_WAIT_S,
) -> DroppedGeneration:
    """Drop the generation irrevocably.

    Raises NotFound, PermanentError with code GENERATION_IS_LIVE, LogUnavailable,
    DatabaseUnavailable.
    """
    await begin_generation_drop(pool, name, decisions.publish_dropped)
    await asyncio.sleep(release_wait_s)
    return await finish_drop(pool, log, name)


async def finish_drop(pool: Pool, log: EventLog, name: str) -> DroppedGeneration:
    """Remove what is left of a dropped generation. Idempotent.

    Token states stay until no event in a topic refers to them; workers sweep them.
    """
    generations = PgGenerations(pool)
    generation = await generations.fetch(name)
    topics = (
        find_unused_topics(generation, await generations.fetch_undropped())
        if generation is not None
        else []
    )
    if generation is not None and generation.topics.get(EMBEDDED, EMBEDDED) in topics:
        await record_dropped_states(pool, name)
    await log.delete_topics(topics)
    removal = await remove_generation_tables(pool, name)
    return DroppedGeneration(name, removal.removed, removal.held_by, tuple(topics))


def find_unused_topics(generation: Generation, remaining: Iterable[Generation]) -> list[str]:
    """List topics of the generation that no other one uses, except `raw` and `accepted`."""
    used = {
        other_generation.topics.get(plain, plain)
        for other_generation in remaining
        for plain in generation.topics
    }
    return sorted(set(generation.topics.values()) - used - {RAW, ACCEPTED})
