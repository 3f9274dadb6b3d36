"""Two workers on the same documents: the latest complete revision becomes visible."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from schemas.events import Event
from schemas.ids import content_id
from schemas.ports.ledger import Ledger, ProjectedEvent
from sql.database import close_pool, open_pool
from sql.inbox.ledger import PgLedger
from sql.operations.integrity import check_integrity
from tests.support.generation_copies import created_row
from tests.support.ledger_events import (
    GENERATION,
    TRANSCRIBE_FINGERPRINT,
    make_accepted,
    make_chunked,
    make_embedded,
    make_removed,
    make_sample_document_id,
    make_transcribed,
    project_event,
)

DOCUMENTS = 6


def make_revision(name: str, order: int) -> list[Event[Any]]:
    """Make a revision in two parts, with words of its own."""
    words = [[f"{name}", f"w{order}"], [f"x{order}", "y"]]
    parts = [
        fact
        for part, part_words in enumerate(words, 1)
        for fact in (
            make_chunked(name, order, part_words, part, 2),
            make_embedded(name, order, part_words, part, 2),
        )
    ]
    return [
        make_accepted(name, order, f"text {order}"),
        make_transcribed(name, order, f"text {order}", TRANSCRIBE_FINGERPRINT),
        *parts,
    ]


def make_history(
    name: str, changes: Sequence[int | None], rng: random.Random, *, late: bool
) -> list[Event[Any]]:
    """Build the events of one document in a partition.

    A number is a revision with that order, None a withdrawal at its position. `late` shuffles them.
    """
    facts = [
        fact
        for ordinal, order in enumerate(changes)
        for fact in (
            make_revision(name, order) if order else [make_removed(name, 10 * ordinal + 5)]
        )
    ]
    if late:
        rng.shuffle(facts)
    return facts


SCENARIOS: dict[str, tuple[list[int | None], list[int | None], int | None]] = {
    "two revisions in two partitions": ([1], [2], 2),
    "a delete and a later upload": ([1, None], [30], 30),
    "an upload and a later delete": ([1, 2], [3, 4, None], None),
    "a delete between two revisions": ([1, None], [2, 40], 40),
}


@pytest.mark.parametrize("late", [False, True], ids=["in order", "late and shuffled"])
@pytest.mark.parametrize("scene", SCENARIOS)
async def test_concurrent_workers_leave_only_latest_complete_revision(
    scene: str, late: bool, database: str
) -> None:
    one, other = (
        await open_pool(database, size=6, name="test"),
        await open_pool(database, size=6, name="test"),
    )
    try:
        genesis = ProjectedEvent(
            replace(make_accepted("none", 1), id=content_id("genesis")), (created_row(GENERATION),)
        )
        await PgLedger(one, GENERATION).claim("control", "always", [genesis])
        left, right, expected = SCENARIOS[scene]
        rng = random.Random(scene)
        works = [
            process_events(
                PgLedger(pool, GENERATION), make_history(f"d{number}", changes, rng, late=late)
            )
            for number in range(DOCUMENTS)
            for pool, changes in rng.sample([(one, left), (other, right)], 2)
        ]
        rng.shuffle(works)
        await asyncio.gather(*works)
        rows = await one.fetch("select document_id, ord from visible")
        assert {row["document_id"]: row["ord"][-1] for row in rows} == (
            {make_sample_document_id(f"d{number}"): expected for number in range(DOCUMENTS)}
            if expected
            else {}
        )
        assert {
            place: count
            for place, count in (await check_integrity(one, assume_idle=True)).items()
            if count
        } == {}
    finally:
        await close_pool(one)
        await close_pool(other)


async def process_events(ledger: Ledger, facts: Sequence[Event[Any]]) -> None:
    for fact in facts:
        stage, counts, event = project_event(fact)
        await ledger.claim(stage, counts, [event])
        await ledger.complete(stage, [fact.id], [])
