"""Crashes and redeliveries do not change the checksum of the Postgres tables."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from schemas.events import Content, DocumentReceived, DocumentWithdrawn
from sql.inbox.ledger import PgLedger
from sql.integrity import compute_checksum
from sql.pool import close_pool, open_pool
from sql.revisions import PgRevisions
from streams.partition_sink import PartitionLimits
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


async def run_script(
    dsn: str, folder: Path, seed: int, *, interrupted: bool
) -> tuple[str, int, dict[str, list[str]]]:
    """Run a seeded script of pushes and withdrawals.

    Returns the checksum, the number of worker lives, and the outcomes of the events.
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
        deaths = sorted(script.sample(range(1, 160), 6)) if interrupted else []
        world = SimulatedPipeline(
            folder,
            deaths,
            seed,
            bounds,
            tables_ledger=PgLedger(pool, GENERATION),
            revisions=PgRevisions(pool),
        )
        world.embedder.flaky = False
        await world.create_generation()
        pushes = random.Random(seed)
        for number in range(14):
            name, text = pushes.choice("abcd"), pushes.choice(TEXTS)
            event = (
                DocumentWithdrawn(external_id=name)
                if text is None
                else DocumentReceived(external_id=name, content=Content(text=text))
            )
            await world.push(event, f"e{number}")
        await world.run()
        found = await compute_checksum(pool, include_history=True)
        return (
            found["checksum"],
            len(deaths) - len(world.crash_injector.crash_points),
            world.list_outcomes(),
        )
    finally:
        await close_pool(pool)


@pytest.mark.parametrize("seed", range(6))
async def test_crashing_run_leaves_same_tables_as_clean_run(
    seed: int, database: str, other_database: str, tmp_path: Path
) -> None:
    (tmp_path / "clean").mkdir()
    (tmp_path / "troubled").mkdir()
    clean, _, clean_outcomes = await run_script(
        database, tmp_path / "clean", seed, interrupted=False
    )
    troubled, lives, outcomes = await run_script(
        other_database, tmp_path / "troubled", seed, interrupted=True
    )
    assert lives > 0
    assert troubled == clean
    for kinds_by_event in (outcomes, clean_outcomes):
        assert {event: len(kinds) for event, kinds in kinds_by_event.items()} == {
            f"e{number}": 1 for number in range(14)
        }
