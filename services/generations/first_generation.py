"""The first generation `g1`. Every worker may publish it: its event id is fixed, and the first
event in the log counts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from processors import TOPICS, get_stage_versions
from schemas.errors import NewerVersion, PermanentError
from schemas.events import GenerationCreated
from schemas.generations import Generation, IndexConfig, compute_chain_fingerprints
from schemas.ids import content_id
from schemas.ports.log import EventLog, RecordAppender
from schemas.timestamps import utc_now
from schemas.topics import CONTROL
from services.engines import check_config_matches
from services.storage import Storage
from sql.index.generations import PgGenerations
from streams.codec import Codec
from streams.publisher import build_root_event

FIRST_GENERATION = "g1"
CE_SOURCE = "anabranch/genesis"
BASE_TOPICS = tuple(topic for topic in TOPICS if topic.feeds_index)


def build_first_generation(config: IndexConfig) -> Generation:
    fingerprints = compute_chain_fingerprints(config, get_stage_versions())
    return Generation(
        name=FIRST_GENERATION,
        config=config,
        how=fingerprints,
        topics={topic: topic for topic in BASE_TOPICS},
        state="live",
    )


async def find_current_generation(
    generations: PgGenerations, log: EventLog, codec: Codec
) -> Generation | None:
    """Find the live generation in the tables, else the first one in the log: it may not be
    projected yet.
    """
    live = await generations.fetch_live()
    if live is not None:
        return live
    async for stored in log.read(CONTROL):
        try:
            # A forged or unreadable record cannot create a generation.
            event = await codec.decode(stored)
        except (PermanentError, NewerVersion):
            continue
        if isinstance(event.data, GenerationCreated):
            return event.data.generation
    return None


async def publish_first_generation(
    config: IndexConfig, log: RecordAppender, codec: Codec, clock: Callable[[], datetime]
) -> None:
    """Publish `g1`. If another process did so at the same time, the first event counts: read it
    back.
    """
    event = build_root_event(
        GenerationCreated(generation=build_first_generation(config)),
        content_id("genesis", FIRST_GENERATION),
        CE_SOURCE,
        clock,
    )
    await log.append([await codec.encode(event, CONTROL, FIRST_GENERATION)])


async def ensure_generation(
    target: IndexConfig, storage: Storage, clock: Callable[[], datetime] = utc_now
) -> Generation:
    """Return the live generation, or publish the first one with configuration `target`.

    Raises GenerationMismatch if the live one has another configuration.
    """
    generations = PgGenerations(storage.pool)
    generation = await find_current_generation(generations, storage.log, storage.codec)
    if generation is None:
        await publish_first_generation(target, storage.log, storage.codec, clock)
        generation = await find_current_generation(generations, storage.log, storage.codec)
    assert generation is not None
    check_config_matches(target, generation.config, generation.name)
    return generation
