"""A generation given up: its tables, and the topics that it alone used."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anabranch.desk.decisions import Decisions
from schemas.generations import Generation
from schemas.ports.log import EventLog
from sql.dropped_states import note_states
from sql.dropping import give_up, remove
from sql.generations import PgGenerations
from sql.pool import Pool
from streams.topics import ACCEPTED, EMBEDDED, RAW

LET_GO_S = 2.0
"""Within which every worker has heard that it need not read for the generation any more."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """`removed`: no table is left; else `held_by` is the transaction that is waited for, and workers finish it when that ends."""

    generation: str
    removed: bool
    held_by: dict[str, Any] | None
    topics: tuple[str, ...]


async def drop_generation(pool: Pool, log: EventLog, decisions: Decisions, name: str, *, let_go_s: float = LET_GO_S) -> Dropped:
    """No way back leads to it. Raises NotFound, PermanentError with code GENERATION_IS_LIVE, LogUnavailable, DatabaseUnavailable."""
    await give_up(pool, name, decisions.dropped)
    await asyncio.sleep(let_go_s)
    return await finish_drop(pool, log, name)


async def finish_drop(pool: Pool, log: EventLog, name: str) -> Dropped:
    """What is left of a dropped generation. Does no harm when it is done again. Token states lie as long as the topic that tells of them; then workers sweep them."""
    generations = PgGenerations(pool)
    gone = await generations.get(name)
    topics = unused_topics(gone, await generations.undropped()) if gone is not None else []
    if gone is not None and gone.topics.get(EMBEDDED, EMBEDDED) in topics:
        await note_states(pool, name)
    await log.delete_topics(topics)
    removal = await remove(pool, name)
    return Dropped(name, removal.removed, removal.held_by, tuple(topics))


def unused_topics(gone: Generation, others: Iterable[Generation]) -> list[str]:
    """Those that it used and no other one does. What comes before any generation stays."""
    used = {other.topics.get(plain, plain) for other in others for plain in gone.topics}
    return sorted(set(gone.topics.values()) - used - {RAW, ACCEPTED})
