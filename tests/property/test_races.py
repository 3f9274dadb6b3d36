"""Two workers at the same documents at the same moment: what is visible in the end is the latest that is whole, whoever came first."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from schemas.events import Fact
from schemas.ids import content_id
from schemas.ports.ledger import Ledger, Projected
from schemas.rows import GenerationRow
from sql.ledger import PgLedger
from sql.pool import close_pool, open_pool
from sql.residue import residue
from tests.contract.ledger_facts import accepted, chunked, document, embedded, projected, removed, transcribed
from tests.contract.test_ledger import GENERATION, HOW

DOCUMENTS = 12


def revision(name: str, order: int) -> list[Fact[Any]]:
    """In two parts, each revision with words of its own."""
    words = [[f"{name}", f"w{order}"], [f"x{order}", "y"]]
    parts = [fact for part, said in enumerate(words, 1) for fact in (chunked(name, order, said, part, 2), embedded(name, order, said, part, 2))]
    return [accepted(name, order, f"text {order}"), transcribed(name, order, f"text {order}", HOW), *parts]


def chain(name: str, changes: Sequence[int | None], mood: random.Random, *, late: bool) -> list[Fact[Any]]:
    """What one partition holds of a document: revisions by their orders, withdrawals by None at the place of theirs. `late`: in no order at all."""
    facts = [fact for place, order in enumerate(changes) for fact in (revision(name, order) if order else [removed(name, 10 * place + 5)])]
    if late:
        mood.shuffle(facts)
    return facts


SCENES: dict[str, tuple[list[int | None], list[int | None], int | None]] = {
    "two revisions in two partitions": ([1], [2], 2),
    "a delete and a later upload": ([1, None], [30], 30),
    "an upload and a later delete": ([1, 2], [3, 4, None], None),
    "a delete between two revisions": ([1, None], [2, 40], 40),
}


@pytest.mark.parametrize("late", [False, True], ids=["in order", "late and shuffled"])
@pytest.mark.parametrize("scene", SCENES)
async def test_two_workers_at_once_leave_the_latest_whole_revision_and_nothing_else(scene: str, late: bool, database: str) -> None:
    one, other = await open_pool(database, size=6, name="test"), await open_pool(database, size=6, name="test")
    try:
        genesis = Projected(replace(accepted("none", 1), id=content_id("genesis")), (GenerationRow(GENERATION),))
        await PgLedger(one, GENERATION).claim("control", "always", [genesis])
        left, right, expected = SCENES[scene]
        mood = random.Random(scene)
        works = [
            work(PgLedger(pool, GENERATION), chain(f"d{number}", changes, mood, late=late))
            for number in range(DOCUMENTS)
            for pool, changes in mood.sample([(one, left), (other, right)], 2)
        ]
        mood.shuffle(works)
        await asyncio.gather(*works)
        rows = await one.fetch("select document_id, ord from visible")
        assert {row["document_id"]: row["ord"][-1] for row in rows} == ({document(f"d{number}"): expected for number in range(DOCUMENTS)} if expected else {})
        assert {place: count for place, count in (await residue(one, settled=True)).items() if count} == {}
    finally:
        await close_pool(one)
        await close_pool(other)


async def work(ledger: Ledger, facts: Sequence[Fact[Any]]) -> None:
    for fact in facts:
        stage, counts, event = projected(fact)
        await ledger.claim(stage, counts, [event])
        await ledger.settle(stage, [fact.id], [])
