"""Crashes and redeliveries do not change the checksum of the Postgres tables."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pytest

from schemas.events import Content, DocumentReceived, DocumentWithdrawn
from sql.catalog.revisions import PgDocumentOwners, PgRevisions
from sql.database import close_pool, open_pool
from sql.inbox.ledger import PgLedger
from sql.log.event_log import PgLog
from sql.operations.integrity import compute_checksum
from streams.chained_records import CHAIN_HEADER
from streams.partition_sink import PartitionLimits
from tests.support.repetitions import repeat
from tests.support.simulated_pipeline import GENERATION, SimulatedPipeline

TEXTS = [
    "one line",
    "first\nsecond\nthird",
    "",
    "much\n" * 70,
    "poison in here",
    "locked",
    "same\nsame\nsame",
    None,
    None,
]

ChainLog = Literal["tables", "records"] | None
FEW_NAMES = "abcd"
MANY_NAMES = "abcdefghijklmnopqrst"
"""A document with several events at once is mostly not chained."""


async def run_script(
    dsn: str, folder: Path, seed: int, names: str, *, interrupted: bool, chain_log: ChainLog
) -> tuple[dict[str, Any], int, dict[str, list[str]]]:
    """Run a seeded script of pushes and withdrawals.

    Returns the checksums, the number of worker lives, and the outcomes of the events. The events
    that chains published are then delivered again, to every stage.
    """
    script = random.Random(seed)
    pool = await open_pool(dsn, size=6, name="test")
    try:
        bounds = (
            PartitionLimits(
                claim_batch_records=script.randint(1, 6),
                max_reactions=script.randint(1, 6),
                max_pending=4,
            )
            if interrupted
            else PartitionLimits()
        )
        # A document that a crash redelivers is not chained again.
        n_deaths, n_steps = (3, 60) if chain_log else (6, 160)
        deaths = sorted(script.sample(range(1, n_steps), n_deaths)) if interrupted else []
        world = SimulatedPipeline(
            folder,
            deaths,
            seed,
            bounds,
            tables_ledger=PgLedger(pool, GENERATION),
            revisions=PgRevisions(pool),
            owners=PgDocumentOwners(pool),
            chain_log=chain_log,
        )
        world.embedder.flaky = False
        await world.create_generation()
        pushes = random.Random(seed)
        for number in range(14):
            name, text = pushes.choice(names), pushes.choice(TEXTS)
            event = (
                DocumentWithdrawn(external_id=name)
                if text is None
                else DocumentReceived(external_id=name, content=Content(text=text))
            )
            await world.push(event, f"e{number}")
        await world.run()
        found = await compute_checksum(pool, include_history=True)
        chained_records = [
            stored.record
            for topic in await PgLog(pool).list_topics()
            async for stored in PgLog(pool).read(topic)
        ]
        for record in chained_records:
            if record.topic == "outcomes":
                world.log.store(record)
        # Without the header, by which a consumer only acknowledges them.
        chained_records += [
            replace(stored.record, headers=headers)
            for stored in chain.from_iterable(world.log.topics.values())
            if (headers := dict(stored.record.headers)).pop(CHAIN_HEADER, None)
        ]
        outcomes = world.list_outcomes()
        for record in chained_records:
            world.log.store(record)
        world.crash_points = []
        await world.run()
        assert await compute_checksum(pool, include_history=True) == found
        # A crash may leave every document to the ordinary path.
        assert chain_log or not chained_records
        return (found["tables"], len(deaths) - len(world.crash_injector.crash_points), outcomes)
    finally:
        await close_pool(pool)


def drop_history(tables: dict[str, Any], chain_log: ChainLog) -> dict[str, Any]:
    """A revision that is withdrawn before its chunks are known leaves no history, and a chain knows
    them at once.
    """
    dropped = {"chunk_history"} if chain_log else set()
    return {name: table for name, table in tables.items() if name not in dropped}


@pytest.mark.parametrize(
    ("names", "chain_log"),
    [(FEW_NAMES, None), (MANY_NAMES, "tables"), (MANY_NAMES, "records")],
)
@pytest.mark.parametrize("seed", repeat(6))
async def test_crashing_run_leaves_same_tables_as_clean_run(
    seed: int,
    names: str,
    chain_log: ChainLog,
    database: str,
    other_database: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "clean").mkdir()
    (tmp_path / "troubled").mkdir()
    clean, _, clean_outcomes = await run_script(
        database, tmp_path / "clean", seed, names, interrupted=False, chain_log=None
    )
    troubled, lives, outcomes = await run_script(
        other_database, tmp_path / "troubled", seed, names, interrupted=True, chain_log=chain_log
    )
    assert lives > 0
    assert drop_history(troubled, chain_log) == drop_history(clean, chain_log)
    for kinds_by_event in (outcomes, clean_outcomes):
        assert {event: len(kinds) for event, kinds in kinds_by_event.items()} == {
            f"e{number}": 1 for number in range(14)
        }


@pytest.mark.parametrize("chain_log", ["tables", "records"])
async def test_chained_run_leaves_same_tables_as_ordinary_run(
    chain_log: ChainLog, database: str, other_database: str, tmp_path: Path
) -> None:
    (tmp_path / "ordinary").mkdir()
    (tmp_path / "chained").mkdir()
    ordinary = await run_script(
        database, tmp_path / "ordinary", 7, MANY_NAMES, interrupted=False, chain_log=None
    )
    chained = await run_script(
        other_database, tmp_path / "chained", 7, MANY_NAMES, interrupted=False, chain_log=chain_log
    )
    assert drop_history(chained[0], chain_log) == drop_history(ordinary[0], chain_log)
    pool = await open_pool(other_database, size=1, name="test")
    try:
        assert await pool.fetchval("select count(*) from inbox where chained_in = 'g1'") > 3
    finally:
        await close_pool(pool)
