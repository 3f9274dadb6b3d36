"""What every ledger promises, in memory and in Postgres."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
import pytest_asyncio

from processors import dead_letters, versions
from schemas.events import EventBuried, Fact
from schemas.events.dead_letters import Place
from schemas.generations import EmbedConfig, Generation, IndexConfig, chain_fingerprints
from schemas.ids import content_id
from schemas.ports.ledger import Claim, Claimed, Ledger, Projected
from schemas.records import Position
from schemas.rows import GenerationRow
from sql.ledger import PgLedger
from sql.pool import close_pool, open_pool
from streams.memory_ledger import MemoryLedger
from tests.contract.ledger_facts import DIMENSION, NOW, accepted, amended, chunked, document, embedded, projected, removed, transcribed

CONFIG = IndexConfig(embed=EmbedConfig(dimension=DIMENSION, state_dimension=0))
GENERATION = Generation(name="g1", config=CONFIG, how=chain_fingerprints(CONFIG, versions()), topics={}, state="live")
HOW = GENERATION.how["transcribe"]


@pytest_asyncio.fixture(params=["memory", "postgres"])
async def ledger(request: pytest.FixtureRequest) -> AsyncIterator[Ledger]:
    if request.param == "memory":
        yield MemoryLedger(GENERATION)
        return
    pool = await open_pool(request.getfixturevalue("database"), size=8, name="test")
    try:
        found = PgLedger(pool, GENERATION)
        await found.claim("control", "always", [Projected(replace(accepted("none", 1), id=content_id("genesis")), (GenerationRow(GENERATION),))])
        yield found
    finally:
        await close_pool(pool)


async def claim(ledger: Ledger, *facts: Any) -> list[Claimed]:
    answers = []
    for fact in facts:
        stage, counts, event = projected(fact)
        answers += await ledger.claim(stage, counts, [event])
    return answers


async def settle(ledger: Ledger, *facts: Any) -> None:
    for fact in facts:
        await ledger.settle(projected(fact)[0], [fact.id], [])


async def show(ledger: Ledger, name: str, order: int, words: list[str], content: str = "text") -> Claimed:
    """A whole revision; the answer is that of its last event."""
    return (
        await claim(ledger, accepted(name, order, content), transcribed(name, order, content, HOW), chunked(name, order, words), embedded(name, order, words))
    )[-1]


async def test_a_claimed_event_is_owed_until_it_is_settled_then_done(ledger: Ledger) -> None:
    fact = accepted("a", 1)
    assert [answer.claim for answer in await claim(ledger, fact, fact)] == [Claim.OWED, Claim.OWED]
    await settle(ledger, fact)
    assert (await claim(ledger, fact))[0].claim is Claim.DONE


async def test_attempts_that_began_and_never_ended_are_counted(ledger: Ledger) -> None:
    fact = accepted("a", 1)
    stage = projected(fact)[0]
    assert [(await claim(ledger, fact))[0].lost for _ in range(4)] == [0, 1, 2, 2]
    for lost in (3, 4):
        await ledger.begin(stage, [fact.id])
        assert (await claim(ledger, fact))[0].lost == lost
    await ledger.release(stage, [fact.id])
    assert (await claim(ledger, fact))[0].lost == 3


async def test_released_claim_is_noted_again_when_redelivered(ledger: Ledger) -> None:
    fact = accepted("a", 1)
    await claim(ledger, fact)
    await ledger.release(projected(fact)[0], [fact.id])
    assert [(await claim(ledger, fact))[0].lost for _ in range(2)] == [0, 1]


async def test_the_same_event_twice_in_one_batch_is_claimed_once(ledger: Ledger) -> None:
    stage, counts, event = projected(chunked("a", 1, ["x"]))
    answers = await ledger.claim(stage, counts, [event, event])
    assert {answer.claim for answer in answers} == {Claim.OWED}


async def test_a_revision_becomes_visible_with_its_last_part_and_the_flip_is_reported_until_settled(ledger: Ledger) -> None:
    one, two = chunked("a", 1, ["x"], 1, 2), chunked("a", 1, ["y"], 2, 2)
    first, second = embedded("a", 1, ["x"], 1, 2), embedded("a", 1, ["y"], 2, 2)
    answers = await claim(ledger, accepted("a", 1), one, first, second, two, two)
    assert [answer.flip is not None for answer in answers] == [False, False, False, False, True, True]
    flip = answers[-1].flip
    assert flip is not None
    assert (flip.document_id, flip.order, flip.chunks, flip.previous) == (document("a"), (1, 1), 2, None)


async def test_a_repeated_part_counts_once(ledger: Ledger) -> None:
    part = chunked("a", 1, ["x"], 1, 2)
    again = replace(part, id=content_id("again"))
    vectors = [embedded("a", 1, ["x"], 1, 2), embedded("a", 1, ["y"], 2, 2)]
    assert all(answer.flip is None for answer in await claim(ledger, part, again, *vectors))


async def test_an_older_acceptance_is_superseded_whenever_it_comes(ledger: Ledger) -> None:
    late, early = accepted("a", 5), accepted("a", 3)
    assert [answer.claim for answer in await claim(ledger, late, early, early)] == [Claim.OWED, Claim.SUPERSEDED, Claim.SUPERSEDED]


async def test_visibility_only_moves_forward(ledger: Ledger) -> None:
    assert (await show(ledger, "a", 2, ["new"])).flip is not None
    old = await claim(ledger, chunked("a", 1, ["old"]), embedded("a", 1, ["old"]))
    assert [answer.claim for answer in old] == [Claim.SUPERSEDED, Claim.SUPERSEDED]
    later = await show(ledger, "a", 3, ["newer"])
    assert later.flip is not None
    assert later.flip.previous == (1, 2)


async def test_an_older_revision_that_completes_first_serves_until_the_later_one_is_there(ledger: Ledger) -> None:
    await claim(ledger, accepted("a", 1), accepted("a", 2))
    assert (await claim(ledger, chunked("a", 1, ["x"]), embedded("a", 1, ["x"])))[-1].flip is not None
    assert (await claim(ledger, chunked("a", 2, ["y"]), embedded("a", 2, ["y"])))[-1].flip is not None


async def test_a_withdrawal_hides_what_was_visible_and_stops_what_comes_late(ledger: Ledger) -> None:
    await show(ledger, "a", 1, ["x"])
    gone = (await claim(ledger, removed("a", 4)))[0]
    assert gone.flip is not None
    assert (gone.flip.previous, gone.flip.chunks) == ((1, 1), 0)
    late = await claim(ledger, accepted("a", 3), chunked("a", 3, ["z"]), embedded("a", 3, ["z"]))
    assert {answer.claim for answer in late} == {Claim.SUPERSEDED}


async def test_a_document_that_comes_again_after_its_withdrawal_is_shown(ledger: Ledger) -> None:
    await show(ledger, "a", 1, ["x"])
    await claim(ledger, removed("a", 2))
    assert (await show(ledger, "a", 3, ["x"])).flip is not None


async def test_a_withdrawal_before_the_document_stops_the_document(ledger: Ledger) -> None:
    answers = await claim(ledger, removed("a", 9), accepted("a", 3))
    assert answers[1].claim is Claim.SUPERSEDED


async def test_the_same_content_and_fields_again_are_unchanged(ledger: Ledger) -> None:
    await show(ledger, "a", 1, ["x"])
    again, titled = (await claim(ledger, accepted("a", 2)))[0], (await claim(ledger, accepted("a", 3, title="now with one")))[0]
    assert (again.unchanged, titled.unchanged) == (True, False)
    assert again.flip is not None
    assert again.flip.chunks == 1


@pytest.mark.parametrize("change", [{"content": "other"}, {"force": True}, {"language": "pt"}, {"tags": ["t"]}])
async def test_what_differs_from_the_visible_revision_is_worked_again(ledger: Ledger, change: dict[str, Any]) -> None:
    await show(ledger, "a", 1, ["x"])
    assert not (await claim(ledger, accepted("a", 2, **change)))[0].unchanged


async def test_what_was_made_by_another_parser_is_worked_again(ledger: Ledger) -> None:
    await claim(ledger, accepted("a", 1), transcribed("a", 1, how="another"), chunked("a", 1, ["x"]), embedded("a", 1, ["x"]))
    assert not (await claim(ledger, accepted("a", 2)))[0].unchanged


async def test_the_door_knows_an_id_with_another_payload(ledger: Ledger) -> None:
    fact = accepted("a", 1)
    answers = [(await ledger.claim("receive", "door", [Projected(replace(fact, payload_sha256=payload), ())]))[0].claim for payload in ("one", "two", "one")]
    assert answers == [Claim.OWED, Claim.DUPLICATE, Claim.OWED]


async def test_parts_that_race_make_the_revision_visible_once_and_never_not_at_all(ledger: Ledger) -> None:
    mood = random.Random(4)
    for name in ("a", "b", "c", "d"):
        parts = [chunked(name, 1, [f"{name}{n}"], n, 6) for n in range(1, 7)] + [embedded(name, 1, [f"{name}{n}"], n, 6) for n in range(1, 7)]
        mood.shuffle(parts)
        answers = await asyncio.gather(*(claim(ledger, part) for part in [*parts, accepted(name, 1)]))
        assert sum(answer.flip is not None for (answer,) in answers) == 1


async def test_a_withdrawal_that_races_late_parts_leaves_nothing_visible(ledger: Ledger) -> None:
    for number in range(12):
        name = f"doc{number}"
        facts = [accepted(name, 1), chunked(name, 1, ["x"]), embedded(name, 1, ["x"]), removed(name, 2)]
        random.Random(number).shuffle(facts)
        await asyncio.gather(*(claim(ledger, fact) for fact in facts))
        after = await claim(ledger, replace(embedded(name, 1, ["x"]), id=content_id("late", name)))
        assert after[0].claim is Claim.SUPERSEDED
        assert after[0].flip is None


async def test_what_is_sent_again_is_not_owed_a_reaction_of_its_own_and_the_first_still_is(ledger: Ledger) -> None:
    fact = accepted("a", 1)
    first, again, elsewhere = (Projected(replace(fact, position=Position("raw", *place)), ()) for place in ((0, 10), (0, 12), (1, 3)))
    batches = [([first, again], [Claim.OWED, Claim.DONE]), ([again], [Claim.DONE]), ([elsewhere], [Claim.DONE]), ([first], [Claim.OWED])]
    for batch, expected in batches:
        assert [answer.claim for answer in await ledger.claim("receive", "door", batch)] == expected


async def test_a_withdrawal_that_comes_late_brings_back_the_unchanged_revision_that_lived_on_what_it_withdraws(ledger: Ledger) -> None:
    await show(ledger, "a", 1, ["x"])
    said: dict[str, Any] = {"title": "Of rivers", "language": "pt", "tags": ["t"], "metadata": {"k": [1]}, "document_date": date(2026, 1, 2)}
    for order in (2, 5, 6, 7):
        await claim(ledger, accepted("a", order, **said))
        if order == 2:
            await claim(ledger, transcribed("a", 2, how=HOW), chunked("a", 2, ["x"]), embedded("a", 2, ["x"]))
    await claim(ledger, accepted("a", 8, "other"))
    late = removed("a", 4)
    answers = await claim(ledger, late, late)
    assert [(answer.claim, answer.revived) for answer in answers] == [(Claim.SUPERSEDED, projected(accepted("a", 7, **said))[2].rows[0])] * 2
    await settle(ledger, late)
    assert [answer.revived for answer in await claim(ledger, late, removed("a", 5))] == [None, None]


async def test_a_withdrawal_that_comes_late_brings_back_nothing_that_it_withdraws_or_that_has_a_text(ledger: Ledger) -> None:
    await show(ledger, "a", 1, ["x"])
    answers = await claim(ledger, accepted("a", 3), removed("a", 4))
    await show(ledger, "b", 1, ["x"])
    await show(ledger, "b", 3, ["y"], "other")
    answers += await claim(ledger, accepted("b", 5, "other"), removed("b", 2), removed("b", 6))
    assert [answer.revived for answer in answers] == [None] * 5


async def test_a_late_withdrawal_takes_what_a_later_changed_revision_has_not_yet_replaced(ledger: Ledger) -> None:
    await show(ledger, "a", 1, ["x"])
    await claim(ledger, accepted("a", 5, "other"), removed("a", 3))
    assert not (await claim(ledger, accepted("a", 6)))[0].unchanged


async def test_an_amendment_counts_by_its_own_order_and_tells_the_title_to_what_follows(ledger: Ledger) -> None:
    early = (await claim(ledger, amended("a", 2, title="Of rivers")))[0]
    assert (early.claim, early.flip) == (Claim.OWED, None)
    assert (await claim(ledger, accepted("a", 1, title="Of lakes")))[0].title == "Of rivers"
    newer, older = await claim(ledger, amended("a", 5, title="Of seas"), amended("a", 4, title="Of ponds"))
    assert [newer.claim, older.claim] == [Claim.OWED, Claim.SUPERSEDED]
    assert (await claim(ledger, accepted("a", 6)))[0].title == "Of seas"
    assert (await claim(ledger, accepted("a", 7, title="Of lakes")))[0].title is None


async def test_an_amendment_of_a_withdrawn_document_changes_nothing_and_does_not_come_back_with_it(ledger: Ledger) -> None:
    await show(ledger, "a", 1, ["x"])
    assert (await claim(ledger, amended("a", 2, title="Of rivers")))[0].flip is not None
    await claim(ledger, removed("a", 5))
    assert (await claim(ledger, amended("a", 4, title="Of seas")))[0].claim is Claim.SUPERSEDED
    assert (await claim(ledger, accepted("a", 6)))[0].title is None


async def test_an_amendment_neither_makes_a_revision_nor_changes_what_is_sent_again(ledger: Ledger) -> None:
    await show(ledger, "a", 1, ["x"])
    told = (await claim(ledger, amended("a", 2, tags=["t"])))[0]
    assert told.flip is not None
    assert (told.flip.order, told.flip.chunks) == ((1, 1), 1)
    assert (await claim(ledger, accepted("a", 3)))[0].unchanged


async def test_no_letter_that_a_producer_may_send_is_refused_by_the_tables(ledger: Ledger) -> None:
    letter = EventBuried(
        stage="receive", event_id=content_id("buried"), buried_type="a\0b", tenant="\0", place=Place(topic="raw", partition=0, offset=1), code="X",
        detail="\0", remedy="\0", attempts=1, producer_event_id="\0", producer_source="\0",
    )  # fmt: skip
    fact = Fact(content_id("letter"), letter, "s", "e", NOW, position=Position("dead_letters", 0, 1))
    rows = tuple(dead_letters.project(fact))
    assert (await ledger.claim("dead_letters", "always", [Projected(fact, rows)]))[0].claim is Claim.OWED
    spoken = transcribed("a", 1, how=HOW)
    spoken = replace(spoken, data=spoken.data.model_copy(update={"language": "e\0", "media_type": "\0"}))
    parts = chunked("a", 1, ["x"])
    parts = replace(parts, data=parts.data.model_copy(update={"language": "e\0"}))
    assert [answer.claim for answer in await claim(ledger, accepted("a", 1), spoken, parts)] == [Claim.OWED] * 3
