"""Drop a generation: its tables, its own topics, and, in batches, its token states."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from processors import STAGES, TOPICS, embed, index
from schemas.generations import Generation
from schemas.ports.log import EventLog
from schemas.topics import EMBEDDED
from services.generations.decisions import GenerationDecisions
from services.generations.stage_assignments import assign_stages
from services.storage import Storage
from sql.index.generation_removal import (
    begin_generation_drop,
    delete_dropped_states,
    fetch_dropped_states,
    record_dropped_states,
    remove_generation_tables,
)
from sql.index.generations import PgGenerations
from sql.operations.erasure import PgErasure
from sql.pool import Pool

RELEASE_WAIT_S = 2.0
"""Within this, every worker has stopped consuming for the generation."""


@dataclass(frozen=True, slots=True)
class DroppedGeneration:
    """`removed` is false while transaction `blocked_by` holds a table.

    Workers finish the removal when the transaction ends.
    """

    generation: str
    removed: bool
    blocked_by: dict[str, Any] | None
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
    # The rows are the only list of these blobs, and they are about to be deleted.
    if generation is not None and generation.topics.get(EMBEDDED, EMBEDDED) in topics:
        await record_dropped_states(pool, name)
    # Before the tables: workers retry a removal only while the generation has tables.
    await log.delete_topics(topics)
    removal = await remove_generation_tables(pool, name)
    return DroppedGeneration(name, removal.removed, removal.blocked_by, tuple(topics))


def find_unused_topics(generation: Generation, remaining: Iterable[Generation]) -> list[str]:
    """List the topics that only this generation uses, without those that all generations share."""
    shared = {topic for topic in TOPICS if not topic.per_generation}
    used = {
        other_generation.topics.get(plain, plain)
        for other_generation in remaining
        for plain in generation.topics
    }
    return sorted(set(generation.topics.values()) - used - shared)


BATCH_SIZE = 20
"""Small, so that an event that arrives meanwhile is seen before the next batch."""
REFERRING_STAGES = (embed.STAGE.name, index.STAGE.name)


async def sweep_token_states(storage: Storage) -> int:
    """Delete unused token states; returns how many.

    Nothing is deleted while an event in flight, or a running replay, may refer to one. Interrupted
    calls are finished by the next.
    """
    deleted_count = 0
    while await fetch_dropped_states(storage.pool, 1) and not await _has_pending_references(
        storage
    ):
        # Only now: what was on its way a moment ago may refer to one.
        batch = await fetch_dropped_states(storage.pool, BATCH_SIZE)
        unused = [key for key, is_used in batch.items() if not is_used]
        # Blobs before their records, so that an interrupted sweep finds them again.
        await storage.blobs.delete(unused)
        await delete_dropped_states(storage.pool, list(batch))
        deleted_count += len(unused)
    return deleted_count


async def _has_pending_references(storage: Storage) -> bool:
    """Return whether an event in flight, or a running replay, may refer to token states.

    Replays are checked first: the events of a replay that has ended are in a topic.
    """
    if await PgErasure(storage.pool).fetch_running_replays():
        return True
    assignments = assign_stages(await PgGenerations(storage.pool).fetch_undropped(), STAGES)
    return any(
        [
            await storage.log.count_pending(assignment.group, assignment.topic)
            for assignment in assignments
            if assignment.stage.name in REFERRING_STAGES
        ]
    )
