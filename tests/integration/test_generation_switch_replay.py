"""A switch between generations is announced, and replayed from the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from anabranch.composition.storage import recover_database
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors import STAGES, announce
from schemas.events import GenerationPromoted
from schemas.generations import IndexConfig
from schemas.ports.stage_ports import StagePorts
from schemas.topics import CONTROL
from services.generations.decisions import GenerationDecisions
from services.generations.service import find_unused_topics
from sql.database import Pool, close_pool, open_pool
from sql.inbox.ledger import PgLedger
from sql.index.generation_switch import roll_back, switch_generation
from sql.index.partitions import begin_generation_drop
from sql.operations.migrate import migrate
from streams.codec import Codec
from streams.stage import Emission, PendingEvent, project_itself
from tests.fakes.null_embedder import NullEmbedder
from tests.fakes.ocr import RejectingEmbedder
from tests.support.database_copies import copy_keys, copy_log
from tests.support.generation_copies import apply_control_rows, created_row
from tests.support.ledger_events import G1, claim_events, make_generation, make_revision_events
from tests.support.log_backends import long_on_postgres
from tests.support.log_cases import LogCase, log_and_subscriber, open_case
from tests.support.pipeline import Pipeline, run_pipeline
from tests.support.reindex_cases import SETTING_CHANGES, make_reindex_service, promote_generation
from tests.support.simulated_pipeline import LineParser

__all__ = ["log_and_subscriber", "open_case"]


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=8, name="test")
    await apply_control_rows(pool, created_row(G1))
    yield pool
    await close_pool(pool)


@pytest_asyncio.fixture
async def other(other_database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(other_database, size=4, name="test")
    await apply_control_rows(pool, created_row(G1))
    yield pool
    await close_pool(pool)


async def fetch_generation_states(pool: Pool) -> tuple[Any, ...]:
    rows = await pool.fetch("select name, state from generations order by name")
    return tuple(await pool.fetchrow("select name, previous from live_generation")), [
        tuple(row) for row in rows
    ]


async def replay_control_topic(case: LogCase, pool: Pool) -> None:
    """Apply the topic as stage control does."""
    codec = Codec()
    async for stored in case.log.read(CONTROL):
        await apply_control_rows(pool, *project_itself(await codec.decode(stored)))


async def test_switches_and_drop_are_reproduced_from_log(
    log_and_subscriber: LogCase, pool: Pool, other: Pool
) -> None:
    case = log_and_subscriber
    await case.log.create_topics({CONTROL: 1}, retention_ms={})
    decisions = GenerationDecisions(case.log, Codec())
    for name in ("g2", "g3"):
        await decisions.publish_created(make_generation(name), "g1", "reindex")
        await decisions.publish_built(name, {"chunked": {0: 5}})
    await replay_control_topic(case, pool)
    accepted, *derived = make_revision_events("d", 1, ["heron"])
    await claim_events(PgLedger(pool, G1), accepted)
    for one in (G1, make_generation("g2"), make_generation("g3")):
        await claim_events(PgLedger(pool, one), *derived)
    assert (await switch_generation(pool, "g2", decisions.publish_promoted)).has_moved
    assert (await roll_back(pool, decisions.publish_promoted)).generation == "g1"
    assert (await switch_generation(pool, "g3", decisions.publish_promoted)).previous == "g1"
    await begin_generation_drop(pool, "g2", decisions.publish_dropped)
    expected = (("g3", "g1"), [("g1", "standby"), ("g2", "dropped"), ("g3", "live")])
    assert await fetch_generation_states(pool) == expected
    await replay_control_topic(case, pool)
    assert await fetch_generation_states(pool) == expected, (
        "what a stage reads later than it was done changes nothing"
    )
    await replay_control_topic(case, other)
    assert await fetch_generation_states(other) == expected


@pytest.mark.parametrize(
    ("gone", "others", "expected"),
    [
        (
            {"chunked": "chunked", "embedded": "embedded.g2"},
            [{"chunked": "chunked", "embedded": "embedded"}],
            ["embedded.g2"],
        ),
        (
            {"raw": "raw", "accepted": "accepted", "embedded": "embedded"},
            [{"embedded": "embedded.g2"}],
            ["embedded"],
        ),
        ({"embedded": "embedded"}, [{"embedded": "embedded.g2"}, {}], []),
        ({"embedded": "embedded.g2"}, [{"embedded": "embedded"}, {"embedded": "embedded.g2"}], []),
    ],
)
def test_only_topics_unused_by_other_generations_are_deleted(
    gone: dict[str, str], others: list[dict[str, str]], expected: list[str]
) -> None:
    dropped = make_generation("g2").model_copy(update={"topics": gone})
    assert (
        find_unused_topics(
            dropped,
            [make_generation("g1").model_copy(update={"topics": topics}) for topics in others],
        )
        == expected
    )


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
