"""Announce once what a switch made searchable, also when the database is lost around it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from anabranch.composition.storage import recover_database
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors import STAGES, announce
from schemas.events import GenerationPromoted
from schemas.generations import IndexConfig
from schemas.ports.stage_ports import StagePorts
from sql.operations.migrate import migrate
from streams.stage import Emission, PendingEvent
from tests.fakes.null_embedder import NullEmbedder
from tests.fakes.rejecting_embedder import RejectingEmbedder
from tests.support.database_copies import copy_keys, copy_log
from tests.support.log_backends import long_on_postgres
from tests.support.pipeline import Pipeline, run_pipeline
from tests.support.reindex_cases import SETTING_CHANGES, make_reindex_service, promote_generation
from tests.support.simulated_pipeline import LineParser


def make_overrides(config: IndexConfig) -> Overrides:
    wide = config.embed.engine == "openai"
    return Overrides(
        parser=LineParser(),
        embedder=NullEmbedder(dimension=24) if wide else RejectingEmbedder(8, 0),
    )


OVERRIDES = Overrides(for_config=make_overrides)


async def hang_on_promotion(counted: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    if any(isinstance(item.event.data, GenerationPromoted) for item in counted):
        await asyncio.Event().wait()
    return await announce.react(counted, ports)


STAGES_HANGING_ON_PROMOTION = [
    replace(stage, react=hang_on_promotion) if stage.name == announce.STAGE.name else stage
    for stage in STAGES
]


async def list_announced_documents(at_work: Pipeline) -> list[str]:
    """List the documents announced as searchable, once per announcement."""
    found = [
        fact.data
        async for stored in at_work.worker.storage.log.read("outcomes")
        if (fact := await at_work.worker.storage.codec.decode(stored))
    ]
    return sorted(data.external_id for data in found if data.event_type() == "document.indexed.v1")


async def recover_from_lost_database(settings: Settings, database: str, other: str) -> None:
    if settings.log_kind == "postgres":
        await copy_log(database, other)
    await copy_keys(database, other)
    assert await recover_database(settings, other) is not None


@long_on_postgres
async def test_unannounced_switch_is_announced_once_after_database_loss(
    settings: Settings, database: str, other_database: str, empty_database: str
) -> None:
    async with run_pipeline(
        settings.data_dir, database, OVERRIDES, settings, stages=STAGES_HANGING_ON_PROMOTION
    ) as at_work:
        await at_work.push_and_wait({"good": "One stork.", "bad": "A heron."})
        assert await list_announced_documents(at_work) == ["good"]
        name, _ = await make_reindex_service(at_work, OVERRIDES).start_reindex(
            SETTING_CHANGES["embedder"][0]
        )
        await at_work.wait_for_state(name, "shadow")
        await promote_generation(at_work, name)
    await recover_from_lost_database(settings, database, other_database)
    async with run_pipeline(settings.data_dir, other_database, OVERRIDES, settings) as again:
        await again.wait_until_idle()
        assert await list_announced_documents(again) == ["bad", "good"]
    await migrate(empty_database)
    await recover_from_lost_database(settings, other_database, empty_database)
    async with run_pipeline(settings.data_dir, empty_database, OVERRIDES, settings) as once_more:
        await once_more.wait_until_idle()
        assert await list_announced_documents(once_more) == ["bad", "good"]
