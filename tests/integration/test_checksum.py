from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from schemas.events import Event
from sql.database import Pool, close_pool, open_pool
from sql.inbox.ledger import PgLedger
from sql.operations.integrity import compute_checksum
from tests.support.generation_copies import apply_control_rows, created_row
from tests.support.ledger_events import G1, claim_events, make_removed, make_revision_events

EventHistory = list[Event[Any]]


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=4, name="test")
    await apply_control_rows(pool, created_row(G1))
    yield pool
    await close_pool(pool)


async def compute_checksum_of(
    pool: Pool, *histories: EventHistory, everything: bool = False
) -> dict[str, Any]:
    await pool.execute(
        "truncate inbox, documents, document_revisions, visible, revision_parts, child_chunks, "
        "parent_chunks, chunk_vectors, lexical_deltas, corpus_deltas,"
        "revision_texts, job_stages, chunk_history"
    )
    for facts in histories:
        await claim_events(PgLedger(pool, G1), *facts)
    return await compute_checksum(pool, include_history=everything)


async def test_empty_database_has_a_checksum(database: str) -> None:
    pool = await open_pool(database, size=2, name="test")
    found = await compute_checksum(pool)
    await close_pool(pool)
    assert {table["rows"] for table in found["tables"].values()} == {0}


async def test_histories_with_equal_outcome_have_equal_checksums(pool: Pool) -> None:
    a1, a2, b = (
        make_revision_events("a", 1, ["old"]),
        make_revision_events("a", 2, ["new", "words"]),
        make_revision_events("b", 3, ["other"]),
    )
    straight = await compute_checksum_of(pool, a2, b)
    winding = await compute_checksum_of(
        pool, b, a1, a2, make_revision_events("c", 1, ["gone"]), [make_removed("c", 2)]
    )
    renumbered = await compute_checksum_of(
        pool,
        make_revision_events("a", 8, ["new", "words"]),
        make_revision_events("b", 9, ["other"]),
    )
    assert straight == winding == renumbered
    assert straight["tables"]["child_chunks"]["rows"] == 3


async def test_every_visible_difference_changes_the_checksum(pool: Pool) -> None:
    sums = [
        await compute_checksum_of(pool),
        await compute_checksum_of(pool, make_revision_events("a", 1, ["one"])),
        await compute_checksum_of(pool, make_revision_events("a", 1, ["two"])),
        await compute_checksum_of(pool, make_revision_events("b", 1, ["one"])),
        await compute_checksum_of(pool, make_revision_events("a", 1, ["one", "two"])),
    ]
    assert len({found["checksum"] for found in sums}) == len(sums)


async def test_full_checksum_includes_revisions_tombstones_and_history(pool: Pool) -> None:
    short, long = (
        [make_revision_events("a", 2, ["new"])],
        [
            make_revision_events("a", 1, ["old"]),
            make_revision_events("a", 2, ["new"]),
            make_revision_events("b", 1, ["x"]),
            [make_removed("b", 2)],
        ],
    )
    assert await compute_checksum_of(pool, *short) == await compute_checksum_of(pool, *long)
    everything = await compute_checksum_of(pool, *long, everything=True)
    assert (
        everything["checksum"]
        != (await compute_checksum_of(pool, *short, everything=True))["checksum"]
    )
    assert (
        everything["tables"]["tombstones"]["rows"],
        everything["tables"]["chunk_history"]["rows"],
    ) == (1, 2)
    assert await compute_checksum_of(pool, *long, everything=True) == everything
