"""Blobs of token states that only a dropped generation referred to go, a few at a time, beside everything else."""

from __future__ import annotations

from anabranch.composition.readers import readers
from anabranch.composition.storage import Storage
from processors import STAGES, embed, index
from sql.dropped_states import dropped_states, forget_states
from sql.erasure import PgErasure
from sql.generations import PgGenerations

AT_ONCE = 20
"""So few that what comes while they go is seen before the next."""
REFERRING = (embed.STAGE.name, index.STAGE.name)


async def sweep_states(storage: Storage) -> int:
    """How many went. Nothing goes while an event that may refer to one is on its way to a generation that stays, or may come
    from a replay; what was begun, any later call finishes."""
    gone = 0
    while await dropped_states(storage.pool, 1) and not await _on_their_way(storage):
        # Only now: what was on its way a moment ago may refer to one.
        found = await dropped_states(storage.pool, AT_ONCE)
        unused = [key for key, used in found.items() if not used]
        await storage.blobs.delete(unused)
        await forget_states(storage.pool, list(found))
        gone += len(unused)
    return gone


async def _on_their_way(storage: Storage) -> bool:
    """A replay first: what it has stated when it ends is in a topic."""
    if await PgErasure(storage.pool).replays_at_work():
        return True
    found = readers(await PgGenerations(storage.pool).undropped(), STAGES)
    return any([await storage.waiting(reader.group, reader.topic) for reader in found if reader.stage.name in REFERRING])
