"""What a switch made searchable is told once, also where the database is lost before it is told, or afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from anabranch.background.recovery import recover
from anabranch.composition.overrides import Overrides
from anabranch.settings import Settings
from engines.embed.null import NullEmbedder
from processors import STAGES, announce
from schemas.events import GenerationPromoted
from schemas.generations import IndexConfig
from schemas.ports.bundle import Ports
from sql.migrate import migrate
from streams.stage import Counted, Statement
from tests.both_logs import on_both_logs
from tests.fakes.choosy import Choosy
from tests.integration.test_generations_in_turn import promote
from tests.integration.test_recovery import copy_keys, copy_log
from tests.integration.test_reindex import CHANGES, reindexing, settings
from tests.pipeline import Pipeline, pipeline
from tests.property.world import LineParser

__all__ = ["settings"]


def engines_of(config: IndexConfig) -> Overrides:
    wide = config.embed.engine == "openai"
    return Overrides(parser=LineParser(), embedder=NullEmbedder(dimension=24) if wide else Choosy(8, 0))


OVERRIDES = Overrides(for_config=engines_of)


async def never_of_a_switch(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    if any(isinstance(item.fact.data, GenerationPromoted) for item in counted):
        await asyncio.Event().wait()
    return await announce.react(counted, ports)


WITHOUT_A_WORD = [replace(stage, react=never_of_a_switch) if stage.name == announce.STAGE.name else stage for stage in STAGES]


async def told(at_work: Pipeline) -> list[str]:
    """Documents that are said to be searchable, each as often as that was said."""
    found = [fact.data async for stored in at_work.worker.storage.log.read("outcomes") if (fact := await at_work.worker.storage.codec.decode(stored))]
    return sorted(data.external_id for data in found if data.event_type() == "document.indexed.v1")


async def lost(settings: Settings, database: str, other: str) -> None:
    if settings.log_kind == "postgres":
        await copy_log(database, other)
    await copy_keys(database, other)
    assert await recover(settings, other) is not None


@on_both_logs
async def test_a_switch_that_nobody_had_told_of_when_the_database_was_lost_is_told_of_once(
    settings: Settings, database: str, other_database: str, empty_database: str
) -> None:
    async with pipeline(settings.data_dir, database, OVERRIDES, settings, stages=WITHOUT_A_WORD) as at_work:
        await at_work.fill({"good": "One stork.", "bad": "A heron."})
        assert await told(at_work) == ["good"]
        desk = replace(reindexing(at_work), overrides=OVERRIDES)
        name, _ = await desk.start(CHANGES["embedder"][0])
        await at_work.reaches(name, "shadow")
        await promote(at_work, name)
    await lost(settings, database, other_database)
    async with pipeline(settings.data_dir, other_database, OVERRIDES, settings) as again:
        await again.quiet()
        assert await told(again) == ["bad", "good"]
    await migrate(empty_database)
    await lost(settings, other_database, empty_database)
    async with pipeline(settings.data_dir, empty_database, OVERRIDES, settings) as once_more:
        await once_more.quiet()
        assert await told(once_more) == ["bad", "good"]
