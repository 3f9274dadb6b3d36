"""Delete token states that only dropped generations refer to, in small batches."""

from __future__ import annotations

from processors import STAGES, embed, index
from services.generations.stage_assignments import assign_stages
from services.storage import Storage
from sql.dropped_states import delete_dropped_states, fetch_dropped_states
from sql.erasure import PgErasure
from sql.generations import PgGenerations

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
        await storage.blobs.delete(unused)
        await delete_dropped_states(storage.pool, list(batch))
        deleted_count += len(unused)
    return deleted_count


async def _has_pending_references(storage: Storage) -> bool:
    """Check replays first: the events of a replay that has ended are in a topic."""
    if await PgErasure(storage.pool).fetch_running_replays():
        return True
    assignments = assign_stages(await PgGenerations(storage.pool).fetch_undropped(), STAGES)
    return any(
        [
            await storage.count_pending(assignment.group, assignment.topic)
            for assignment in assignments
            if assignment.stage.name in REFERRING_STAGES
        ]
    )
