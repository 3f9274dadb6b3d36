"""What was decided about generations, read again from each log, gives the same tables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from anabranch.desk.decisions import Decisions
from anabranch.desk.dropping import unused_topics
from processors import control
from schemas.rows import GenerationRow
from sql.dropping import give_up
from sql.ledger import PgLedger
from sql.pool import Pool, close_pool, open_pool
from sql.switching import roll_back, switch
from streams.codec import Codec
from streams.topics import CONTROL
from tests.contract.logs import LogCase, log_and_subscriber, open_case
from tests.integration.test_ledger import G1, claim, decide, generation, revision

__all__ = ["log_and_subscriber", "open_case"]


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=8, name="test")
    await decide(pool, GenerationRow(G1))
    yield pool
    await close_pool(pool)


@pytest_asyncio.fixture
async def other(other_database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(other_database, size=4, name="test")
    await decide(pool, GenerationRow(G1))
    yield pool
    await close_pool(pool)


async def told(pool: Pool) -> tuple[Any, ...]:
    rows = await pool.fetch("select name, state from generations order by name")
    return tuple(await pool.fetchrow("select name, previous from live_generation")), [tuple(row) for row in rows]


async def read_again(case: LogCase, pool: Pool) -> None:
    """As stage control does."""
    codec = Codec()
    async for stored in case.log.read(CONTROL):
        await decide(pool, *control.project(await codec.decode(stored)))


async def test_switches_and_a_drop_are_the_same_from_the_log_alone(log_and_subscriber: LogCase, pool: Pool, other: Pool) -> None:
    case = log_and_subscriber
    await case.log.create_topics({CONTROL: 1}, retention_ms={})
    decisions = Decisions(case.log, Codec())
    for name in ("g2", "g3"):
        await decisions.created(generation(name), "g1", "reindex")
        await decisions.built(name, {"chunked": {0: 5}})
    await read_again(case, pool)
    accepted, *derived = revision("d", 1, ["heron"])
    await claim(PgLedger(pool, G1), accepted)
    for one in (G1, generation("g2"), generation("g3")):
        await claim(PgLedger(pool, one), *derived)
    assert (await switch(pool, "g2", decisions.promoted)).moved
    assert (await roll_back(pool, decisions.promoted)).generation == "g1"
    assert (await switch(pool, "g3", decisions.promoted)).previous == "g1"
    await give_up(pool, "g2", decisions.dropped)
    expected = (("g3", "g1"), [("g1", "standby"), ("g2", "dropped"), ("g3", "live")])
    assert await told(pool) == expected
    await read_again(case, pool)
    assert await told(pool) == expected, "what a stage reads later than it was done changes nothing"
    await read_again(case, other)
    assert await told(other) == expected


@pytest.mark.parametrize(
    ("gone", "others", "expected"),
    [
        ({"chunked": "chunked", "embedded": "embedded.g2"}, [{"chunked": "chunked", "embedded": "embedded"}], ["embedded.g2"]),
        ({"raw": "raw", "accepted": "accepted", "embedded": "embedded"}, [{"embedded": "embedded.g2"}], ["embedded"]),
        ({"embedded": "embedded"}, [{"embedded": "embedded.g2"}, {}], []),
        ({"embedded": "embedded.g2"}, [{"embedded": "embedded"}, {"embedded": "embedded.g2"}], []),
    ],
)
def test_only_topics_that_no_other_generation_uses_are_deleted(gone: dict[str, str], others: list[dict[str, str]], expected: list[str]) -> None:
    dropped = generation("g2").model_copy(update={"topics": gone})
    assert unused_topics(dropped, [generation("g1").model_copy(update={"topics": topics}) for topics in others]) == expected
