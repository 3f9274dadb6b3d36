"""The first generation: `g1`, with a fixed event id, published by whoever finds none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from processors import versions
from schemas.errors import NewerVersion, PermanentError
from schemas.events import GenerationCreated
from schemas.generations import Generation, IndexConfig, chain_fingerprints
from schemas.ids import content_id
from schemas.ports.ledger import Generations
from schemas.ports.log import EventLog
from streams import topics
from streams.codec import Codec
from streams.publisher import own_fact

FIRST = "g1"
AUTHOR = "anabranch/genesis"
PLAIN_TOPICS = (topics.RAW, topics.ACCEPTED, topics.OCR_DONE, topics.CHUNKED, topics.ENTITIES, topics.EMBEDDED)


def first_generation(config: IndexConfig) -> Generation:
    how = chain_fingerprints(config, versions())
    return Generation(name=FIRST, config=config, how=how, topics={topic: topic for topic in PLAIN_TOPICS}, state="live")


async def current_generation(generations: Generations, log: EventLog, codec: Codec) -> Generation | None:
    """The live one by the tables, else the first that the log knows of: it may not be projected yet, or the tables may be new."""
    live = await generations.live()
    if live is not None:
        return live
    async for stored in log.read(topics.CONTROL):
        try:
            fact = await codec.decode(stored)
        except (PermanentError, NewerVersion):
            continue
        if isinstance(fact.data, GenerationCreated):
            return fact.data.generation
    return None


async def publish_first(config: IndexConfig, log: EventLog, codec: Codec, clock: Callable[[], datetime]) -> None:
    """Where two do so at once, the first in the log holds: read it back."""
    fact = own_fact(GenerationCreated(generation=first_generation(config)), content_id("genesis", FIRST), AUTHOR, clock)
    await log.append([await codec.encode(fact, topics.CONTROL, FIRST)])
