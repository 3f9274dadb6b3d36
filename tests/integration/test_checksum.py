from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from schemas.events import Fact
from schemas.rows import GenerationRow
from sql.checksum import checksum
from sql.ledger import PgLedger
from sql.pool import Pool, close_pool, open_pool
from tests.contract.ledger_facts import removed
from tests.integration.test_ledger import G1, claim, decide, revision

Facts = list[Fact[Any]]


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=4, name="test")
    await decide(pool, GenerationRow(G1))
    yield pool
    await close_pool(pool)


async def of(pool: Pool, *histories: Facts, everything: bool = False) -> dict[str, Any]:
    await pool.execute(
        "truncate handled, documents, document_revisions, visible, settled, child_chunks, parent_chunks, chunk_vectors, lexical_deltas, corpus_deltas,"
        "revision_texts, job_stages, chunk_history"
    )
    for facts in histories:
        await claim(PgLedger(pool, G1), *facts)
    return await checksum(pool, everything=everything)


async def test_an_empty_database_has_a_sum_too(database: str) -> None:
    pool = await open_pool(database, size=2, name="test")
    found = await checksum(pool)
    await close_pool(pool)
    assert {table["rows"] for table in found["tables"].values()} == {0}


async def test_histories_that_end_in_the_same_documents_sum_up_equal(pool: Pool) -> None:
    a1, a2, b = revision("a", 1, ["old"]), revision("a", 2, ["new", "words"]), revision("b", 3, ["other"])
    straight = await of(pool, a2, b)
    winding = await of(pool, b, a1, a2, revision("c", 1, ["gone"]), [removed("c", 2)])
    renumbered = await of(pool, revision("a", 8, ["new", "words"]), revision("b", 9, ["other"]))
    assert straight == winding == renumbered
    assert straight["tables"]["child_chunks"]["rows"] == 3


async def test_every_difference_in_what_is_visible_shows(pool: Pool) -> None:
    sums = [
        await of(pool),
        await of(pool, revision("a", 1, ["one"])),
        await of(pool, revision("a", 1, ["two"])),
        await of(pool, revision("b", 1, ["one"])),
        await of(pool, revision("a", 1, ["one", "two"])),
    ]
    assert len({found["checksum"] for found in sums}) == len(sums)


async def test_revisions_tombstones_and_history_count_only_when_all_is_asked_for(pool: Pool) -> None:
    short, long = [revision("a", 2, ["new"])], [revision("a", 1, ["old"]), revision("a", 2, ["new"]), revision("b", 1, ["x"]), [removed("b", 2)]]
    assert await of(pool, *short) == await of(pool, *long)
    everything = await of(pool, *long, everything=True)
    assert everything["checksum"] != (await of(pool, *short, everything=True))["checksum"]
    assert (everything["tables"]["tombstones"]["rows"], everything["tables"]["chunk_history"]["rows"]) == (1, 2)
    assert await of(pool, *long, everything=True) == everything
