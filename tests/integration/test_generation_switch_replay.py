"""Replaying the generation decisions of either log gives the same tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from schemas.topics import CONTROL
from services.generations.decisions import GenerationDecisions
from services.generations.removal import find_unused_topics
from sql.inbox.ledger import PgLedger
from sql.index.generation_removal import begin_generation_drop
from sql.index.generation_switch import roll_back, switch_generation
from sql.pool import Pool, close_pool, open_pool
from streams.codec import Codec
from streams.stage import project_itself
from tests.support.generation_copies import apply_control_rows, created_row
from tests.support.ledger_events import G1, claim_events, make_generation, make_revision_events
from tests.support.log_cases import LogCase, log_and_subscriber, open_case

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
