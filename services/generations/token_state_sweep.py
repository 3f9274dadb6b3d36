"""Blobs of token states that only a dropped generation referred to go, a few at a time, beside everything else."""

from __future__ import annotations

from processors import STAGES, embed, index
from services.generations.stage_assignments import assign_stages
from services.storage import Storage
from sql.dropped_states import delete_dropped_states, fetch_dropped_states
from sql.erasure import PgErasure
from sql.generations import PgGenerations

BATCH_SIZE = 20
"""So few that what comes while they go is seen before the next."""
REFERRING_STAGES = (embed.STAGE.name, index.STAGE.name)


async def sweep_token_states(storage: Storage) -> int:
    """How many went. Nothing goes while an event that may refer to one is on its way to a generation that stays, or may come
    from a replay; what was begun, any later call finishes."""
    deleted_count = 0
    while await fetch_dropped_states(storage.pool, 1) and not await _has_pending_references(storage):
        # Only now: what was on its way a moment ago may refer to one.
        batch = await fetch_dropped_states(storage.pool, BATCH_SIZE)
        unused = [key for key, is_used in batch.items() if not is_used]
        await storage.blobs.delete(unused)
        await delete_dropped_states(storage.pool, list(batch))
        deleted_count += len(unused)
    return deleted_count


async def _has_pending_references(storage: Storage) -> bool:
    """A replay first: what it has stated when it ends is in a topic."""
    if await PgErasure(storage.pool).fetch_running_replays():
        return True
    assignments = assign_stages(await PgGenerations(storage.pool).fetch_undropped(), STAGES)
    return any([await storage.count_pending(assignment.group, assignment.topic) for assignment in assignments if assignment.stage.name in REFERRING_STAGES])
