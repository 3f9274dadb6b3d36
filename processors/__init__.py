"""The write side: one module per stage, each with `project`, `react` or both."""

from __future__ import annotations

from processors import (
    announce,
    answers,
    chunk,
    control,
    dead_letters,
    embed,
    erase,
    extract,
    graph,
    index,
    judgements,
    receive,
    runs,
    transcribe,
)
from schemas import topics
from schemas.events import EventData
from schemas.topics import Topic
from streams.stage import (
    Stage,
    collect_event_classes,
    order_topics,
    require_event_per_topic,
    require_rebuildable_tables,
    require_upstream_stages,
)

STAGES: tuple[Stage, ...] = (
    receive.STAGE,
    transcribe.STAGE,
    chunk.STAGE,
    embed.STAGE,
    extract.STAGE,
    index.STAGE,
    graph.STAGE,
    control.STAGE,
    announce.STAGE,
    erase.STAGE,
    runs.STAGE,
    judgements.STAGE,
    answers.STAGE,
    dead_letters.STAGE,
)

require_rebuildable_tables(STAGES)
require_upstream_stages(STAGES)

EVENT_CLASSES: tuple[type[EventData], ...] = collect_event_classes(STAGES)
# Upstream first: a drain waits for the topics in this order.
TOPICS: tuple[Topic, ...] = order_topics(STAGES)

require_event_per_topic(vars(topics).values(), TOPICS)


def get_stage_versions() -> dict[str, int]:
    """Return the version of each stage, which is part of the pipeline fingerprint."""
    return {stage.name: stage.version for stage in STAGES}
