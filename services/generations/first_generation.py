"""The first generation: `g1`, with a fixed event id, published by whoever finds none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from processors import get_stage_versions
from schemas.errors import NewerVersion, PermanentError
from schemas.events import GenerationCreated
from schemas.generations import Generation, IndexConfig, compute_chain_fingerprints
from schemas.ids import content_id
from schemas.ports.ledger import GenerationStore
from schemas.ports.log import EventLog
from streams import topics
from streams.codec import Codec
from streams.publisher import build_root_event

FIRST_GENERATION = "g1"
CE_SOURCE = "anabranch/genesis"
BASE_TOPICS = (topics.RAW, topics.ACCEPTED, topics.OCR_DONE, topics.CHUNKED, topics.ENTITIES, topics.EMBEDDED)


def build_first_generation(config: IndexConfig) -> Generation:
    fingerprints = compute_chain_fingerprints(config, get_stage_versions())
    return Generation(name=FIRST_GENERATION, config=config, how=fingerprints, topics={topic: topic for topic in BASE_TOPICS}, state="live")


async def find_current_generation(generations: GenerationStore, log: EventLog, codec: Codec) -> Generation | None:
    """The live one by the tables, else the first that the log knows of: it may not be projected yet, or the tables may be new."""
    live = await generations.fetch_live()
    if live is not None:
        return live
    async for stored in log.read(topics.CONTROL):
        try:
            event = await codec.decode(stored)
        except (PermanentError, NewerVersion):
            continue
        if isinstance(event.data, GenerationCreated):
            return event.data.generation
    return None


async def publish_first_generation(config: IndexConfig, log: EventLog, codec: Codec, clock: Callable[[], datetime]) -> None:
    """Where two do so at once, the first in the log holds: read it back."""
    event = build_root_event(GenerationCreated(generation=build_first_generation(config)), content_id("genesis", FIRST_GENERATION), CE_SOURCE, clock)
    await log.append([await codec.encode(event, topics.CONTROL, FIRST_GENERATION)])
