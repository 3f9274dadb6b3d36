"""Contract of the ledger, run in memory and against Postgres."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
import pytest_asyncio

from processors import dead_letters
from schemas.events import Event, EventDeadLettered
from schemas.events.dead_letters import LogPosition
from schemas.ids import content_id
from schemas.ports.ledger import ClaimResult, ClaimStatus, Ledger, ProjectedEvent
from schemas.topics import Position
from sql.database import close_pool, open_pool
from sql.inbox.ledger import PgLedger
from tests.fakes.memory_ledger import MemoryLedger
from tests.support.generation_copies import created_row
from tests.support.ledger_events import (
    GENERATION,
    NOW,
    TRANSCRIBE_FINGERPRINT,
    make_accepted,
    make_amended,
    make_chunked,
    make_embedded,
    make_removed,
    make_sample_document_id,
    make_transcribed,
    project_event,
)


@pytest_asyncio.fixture(params=["memory", "postgres"])
async def ledger(request: pytest.FixtureRequest) -> AsyncIterator[Ledger]:
    if request.param == "memory":
        yield MemoryLedger(GENERATION)
        return
    pool = await open_pool(request.getfixturevalue("database"), size=8, name="test")
    try:
        found = PgLedger(pool, GENERATION)
        await found.claim(
            "control",
            "always",
            [
                ProjectedEvent(
                    replace(make_accepted("none", 1), id=content_id("genesis")),
                    (created_row(GENERATION),),
                )
            ],
        )
        yield found
    finally:
        await close_pool(pool)


async def claim_events(ledger: Ledger, *facts: Any) -> list[ClaimResult]:
    answers = []
    for fact in facts:
        stage, counts, event = project_event(fact)
        answers += await ledger.claim(stage, counts, [event])
    return answers


async def complete_events(ledger: Ledger, *facts: Any) -> None:
    for fact in facts:
        await ledger.complete(project_event(fact)[0], [fact.id], [])


async def index_revision(
    ledger: Ledger, name: str, order: int, words: list[str], content: str = "text"
) -> ClaimResult:
    """Claim all events of a revision and return the answer to the last one."""
    return (
        await claim_events(
            ledger,
            make_accepted(name, order, content),
            make_transcribed(name, order, content, TRANSCRIBE_FINGERPRINT),
            make_chunked(name, order, words),
            make_embedded(name, order, words),
        )
    )[-1]


async def test_claimed_event_is_pending_until_settled(ledger: Ledger) -> None:
    fact = make_accepted("a", 1)
    assert [answer.status for answer in await claim_events(ledger, fact, fact)] == [
        ClaimStatus.PENDING,
        ClaimStatus.PENDING,
    ]
    await complete_events(ledger, fact)
    assert (await claim_events(ledger, fact))[0].status is ClaimStatus.DONE


async def test_unfinished_attempts_are_counted(ledger: Ledger) -> None:
    fact = make_accepted("a", 1)
    stage = project_event(fact)[0]
    assert [(await claim_events(ledger, fact))[0].abandoned_attempts for _ in range(4)] == [
        0,
        1,
        2,
        2,
    ]
    for lost in (3, 4):
        await ledger.record_attempt(stage, [fact.id])
        assert (await claim_events(ledger, fact))[0].abandoned_attempts == lost
    await ledger.withdraw_attempt(stage, [fact.id])
    assert (await claim_events(ledger, fact))[0].abandoned_attempts == 3


async def test_released_claim_is_recorded_again_on_redelivery(ledger: Ledger) -> None:
    fact = make_accepted("a", 1)
    await claim_events(ledger, fact)
    await ledger.withdraw_attempt(project_event(fact)[0], [fact.id])
    assert [(await claim_events(ledger, fact))[0].abandoned_attempts for _ in range(2)] == [0, 1]


async def test_duplicate_event_in_batch_is_claimed_once(ledger: Ledger) -> None:
    stage, counts, event = project_event(make_chunked("a", 1, ["x"]))
    answers = await ledger.claim(stage, counts, [event, event])
    assert {answer.status for answer in answers} == {ClaimStatus.PENDING}


async def test_last_part_activates_revision_and_reports_until_settled(ledger: Ledger) -> None:
    one, two = make_chunked("a", 1, ["x"], 1, 2), make_chunked("a", 1, ["y"], 2, 2)
    first, second = make_embedded("a", 1, ["x"], 1, 2), make_embedded("a", 1, ["y"], 2, 2)
    answers = await claim_events(ledger, make_accepted("a", 1), one, first, second, two, two)
    assert [answer.visibility_change is not None for answer in answers] == [
        False,
        False,
        False,
        False,
        True,
        True,
    ]
    flip = answers[-1].visibility_change
    assert flip is not None
    assert (flip.document_id, flip.order, flip.n_chunks, flip.previous) == (
        make_sample_document_id("a"),
        (1, 1),
        2,
        None,
    )


async def test_repeated_part_counts_once(ledger: Ledger) -> None:
    part = make_chunked("a", 1, ["x"], 1, 2)
    again = replace(part, id=content_id("again"))
    vectors = [make_embedded("a", 1, ["x"], 1, 2), make_embedded("a", 1, ["y"], 2, 2)]
    assert all(
        answer.visibility_change is None
        for answer in await claim_events(ledger, part, again, *vectors)
    )


async def test_older_acceptance_is_superseded(ledger: Ledger) -> None:
    late, early = make_accepted("a", 5), make_accepted("a", 3)
    assert [answer.status for answer in await claim_events(ledger, late, early, early)] == [
        ClaimStatus.PENDING,
        ClaimStatus.SUPERSEDED,
        ClaimStatus.SUPERSEDED,
    ]


async def test_visible_revision_never_goes_backward(ledger: Ledger) -> None:
    assert (await index_revision(ledger, "a", 2, ["new"])).visibility_change is not None
    old = await claim_events(ledger, make_chunked("a", 1, ["old"]), make_embedded("a", 1, ["old"]))
    assert [answer.status for answer in old] == [ClaimStatus.SUPERSEDED, ClaimStatus.SUPERSEDED]
    later = await index_revision(ledger, "a", 3, ["newer"])
    assert later.visibility_change is not None
    assert later.visibility_change.previous == (1, 2)


async def test_older_complete_revision_is_visible_until_newer_completes(ledger: Ledger) -> None:
    await claim_events(ledger, make_accepted("a", 1), make_accepted("a", 2))
    assert (await claim_events(ledger, make_chunked("a", 1, ["x"]), make_embedded("a", 1, ["x"])))[
        -1
    ].visibility_change is not None
    assert (await claim_events(ledger, make_chunked("a", 2, ["y"]), make_embedded("a", 2, ["y"])))[
        -1
    ].visibility_change is not None


async def test_withdrawal_hides_document_and_supersedes_late_parts(ledger: Ledger) -> None:
    await index_revision(ledger, "a", 1, ["x"])
    removal = (await claim_events(ledger, make_removed("a", 4)))[0]
    assert removal.visibility_change is not None
    assert (removal.visibility_change.previous, removal.visibility_change.n_chunks) == ((1, 1), 0)
    late = await claim_events(
        ledger, make_accepted("a", 3), make_chunked("a", 3, ["z"]), make_embedded("a", 3, ["z"])
    )
    assert {answer.status for answer in late} == {ClaimStatus.SUPERSEDED}


async def test_document_sent_after_withdrawal_becomes_visible(ledger: Ledger) -> None:
    await index_revision(ledger, "a", 1, ["x"])
    await claim_events(ledger, make_removed("a", 2))
    assert (await index_revision(ledger, "a", 3, ["x"])).visibility_change is not None


async def test_early_withdrawal_supersedes_document(ledger: Ledger) -> None:
    answers = await claim_events(ledger, make_removed("a", 9), make_accepted("a", 3))
    assert answers[1].status is ClaimStatus.SUPERSEDED


async def test_identical_revision_is_unchanged(ledger: Ledger) -> None:
    await index_revision(ledger, "a", 1, ["x"])
    again, titled = (
        (await claim_events(ledger, make_accepted("a", 2)))[0],
        (await claim_events(ledger, make_accepted("a", 3, title="now with one")))[0],
    )
    assert (again.is_unchanged, titled.is_unchanged) == (True, False)
    assert again.visibility_change is not None
    assert again.visibility_change.n_chunks == 1


@pytest.mark.parametrize(
    "change", [{"content": "other"}, {"force": True}, {"language": "pt"}, {"tags": ["t"]}]
)
async def test_changed_revision_is_reprocessed(ledger: Ledger, change: dict[str, Any]) -> None:
    await index_revision(ledger, "a", 1, ["x"])
    assert not (await claim_events(ledger, make_accepted("a", 2, **change)))[0].is_unchanged


async def test_revision_from_other_parser_is_reprocessed(ledger: Ledger) -> None:
    await claim_events(
        ledger,
        make_accepted("a", 1),
        make_transcribed("a", 1, fingerprint="another"),
        make_chunked("a", 1, ["x"]),
        make_embedded("a", 1, ["x"]),
    )
    assert not (await claim_events(ledger, make_accepted("a", 2)))[0].is_unchanged


async def test_ingress_detects_reused_id_with_different_payload(ledger: Ledger) -> None:
    fact = make_accepted("a", 1)
    answers = [
        (
            await ledger.claim(
                "receive",
                "once_per_id",
                [ProjectedEvent(replace(fact, payload_sha256=payload), ())],
            )
        )[0].status
        for payload in ("one", "two", "one")
    ]
    assert answers == [ClaimStatus.PENDING, ClaimStatus.DUPLICATE, ClaimStatus.PENDING]


async def test_concurrent_parts_activate_revision_exactly_once(ledger: Ledger) -> None:
    rng = random.Random(4)
    for name in ("a", "b", "c", "d"):
        parts = [make_chunked(name, 1, [f"{name}{n}"], n, 6) for n in range(1, 7)] + [
            make_embedded(name, 1, [f"{name}{n}"], n, 6) for n in range(1, 7)
        ]
        rng.shuffle(parts)
        answers = await asyncio.gather(
            *(claim_events(ledger, part) for part in [*parts, make_accepted(name, 1)])
        )
        assert sum(answer.visibility_change is not None for (answer,) in answers) == 1


async def test_concurrent_withdrawal_and_parts_leave_nothing_visible(ledger: Ledger) -> None:
    for number in range(12):
        name = f"doc{number}"
        facts = [
            make_accepted(name, 1),
            make_chunked(name, 1, ["x"]),
            make_embedded(name, 1, ["x"]),
            make_removed(name, 2),
        ]
        random.Random(number).shuffle(facts)
        await asyncio.gather(*(claim_events(ledger, fact) for fact in facts))
        after = await claim_events(
            ledger, replace(make_embedded(name, 1, ["x"]), id=content_id("late", name))
        )
        assert after[0].status is ClaimStatus.SUPERSEDED
        assert after[0].visibility_change is None


async def test_resent_event_has_no_pending_reaction_of_its_own(ledger: Ledger) -> None:
    fact = make_accepted("a", 1)
    first, again, elsewhere = (
        ProjectedEvent(replace(fact, position=Position("raw", *place)), ())
        for place in ((0, 10), (0, 12), (1, 3))
    )
    batches = [
        ([first, again], [ClaimStatus.PENDING, ClaimStatus.DONE]),
        ([again], [ClaimStatus.DONE]),
        ([elsewhere], [ClaimStatus.DONE]),
        ([first], [ClaimStatus.PENDING]),
    ]
    for batch, expected in batches:
        assert [
            answer.status for answer in await ledger.claim("receive", "once_per_id", batch)
        ] == expected


async def test_late_withdrawal_revives_dependent_unchanged_revision(ledger: Ledger) -> None:
    await index_revision(ledger, "a", 1, ["x"])
    said: dict[str, Any] = {
        "title": "Of rivers",
        "language": "pt",
        "tags": ["t"],
        "metadata": {"k": [1]},
        "document_date": date(2026, 1, 2),
    }
    for order in (2, 5, 6, 7):
        await claim_events(ledger, make_accepted("a", order, **said))
        if order == 2:
            await claim_events(
                ledger,
                make_transcribed("a", 2, fingerprint=TRANSCRIBE_FINGERPRINT),
                make_chunked("a", 2, ["x"]),
                make_embedded("a", 2, ["x"]),
            )
    await claim_events(ledger, make_accepted("a", 8, "other"))
    late = make_removed("a", 4)
    answers = await claim_events(ledger, late, late)
    assert [(answer.status, answer.revived_revision) for answer in answers] == [
        (ClaimStatus.SUPERSEDED, project_event(make_accepted("a", 7, **said))[2].rows[0])
    ] * 2
    await complete_events(ledger, late)
    assert [
        answer.revived_revision for answer in await claim_events(ledger, late, make_removed("a", 5))
    ] == [None, None]


async def test_late_withdrawal_revives_no_withdrawn_or_transcribed_revision(ledger: Ledger) -> None:
    await index_revision(ledger, "a", 1, ["x"])
    answers = await claim_events(ledger, make_accepted("a", 3), make_removed("a", 4))
    await index_revision(ledger, "b", 1, ["x"])
    await index_revision(ledger, "b", 3, ["y"], "other")
    answers += await claim_events(
        ledger, make_accepted("b", 5, "other"), make_removed("b", 2), make_removed("b", 6)
    )
    assert [answer.revived_revision for answer in answers] == [None] * 5


async def test_late_withdrawal_hides_revision_not_yet_replaced(ledger: Ledger) -> None:
    await index_revision(ledger, "a", 1, ["x"])
    await claim_events(ledger, make_accepted("a", 5, "other"), make_removed("a", 3))
    assert not (await claim_events(ledger, make_accepted("a", 6)))[0].is_unchanged


async def test_amendments_apply_by_order_and_set_later_titles(ledger: Ledger) -> None:
    early = (await claim_events(ledger, make_amended("a", 2, title="Of rivers")))[0]
    assert (early.status, early.visibility_change) == (ClaimStatus.PENDING, None)
    assert (await claim_events(ledger, make_accepted("a", 1, title="Of lakes")))[
        0
    ].amended_title == "Of rivers"
    newer, older = await claim_events(
        ledger, make_amended("a", 5, title="Of seas"), make_amended("a", 4, title="Of ponds")
    )
    assert [newer.status, older.status] == [ClaimStatus.PENDING, ClaimStatus.SUPERSEDED]
    assert (await claim_events(ledger, make_accepted("a", 6)))[0].amended_title == "Of seas"
    assert (await claim_events(ledger, make_accepted("a", 7, title="Of lakes")))[
        0
    ].amended_title is None


async def test_withdrawal_discards_amendments(ledger: Ledger) -> None:
    await index_revision(ledger, "a", 1, ["x"])
    assert (await claim_events(ledger, make_amended("a", 2, title="Of rivers")))[
        0
    ].visibility_change is not None
    await claim_events(ledger, make_removed("a", 5))
    assert (await claim_events(ledger, make_amended("a", 4, title="Of seas")))[
        0
    ].status is ClaimStatus.SUPERSEDED
    assert (await claim_events(ledger, make_accepted("a", 6)))[0].amended_title is None


ANA, BOARD = ["user:ana"], ["group:board"]


@pytest.mark.parametrize("is_late", [False, True])
async def test_amendment_by_excluded_caller_has_no_effect(ledger: Ledger, is_late: bool) -> None:
    restriction = make_amended("a", 2, readers=BOARD, title="Minutes")
    attack = make_amended("a", 3, readers=ANA, title="Mine", limited_to=ANA)
    await claim_events(ledger, make_accepted("a", 1))
    if is_late:
        # The restriction came from a partition that is read later.
        assert (await claim_events(ledger, attack))[0].amended_title == "Mine"
        assert (await claim_events(ledger, restriction))[0].amended_title == "Minutes"
    else:
        await claim_events(ledger, restriction)
        (refused,) = await claim_events(ledger, attack)
        assert (refused.status, refused.amended_title) == (ClaimStatus.SUPERSEDED, "Minutes")
    later = make_amended("a", 4, title="Ours", limited_to=[*BOARD, "user:rui"])
    (allowed,) = await claim_events(ledger, later)
    assert (allowed.status, allowed.amended_title) == (ClaimStatus.PENDING, "Ours")
    (still_refused,) = await claim_events(ledger, make_amended("a", 5, title="x", limited_to=ANA))
    assert still_refused.amended_title == "Ours"


@pytest.mark.parametrize("is_withdrawn", [False, True])
async def test_revision_by_excluded_caller_has_no_effect(
    ledger: Ledger, is_withdrawn: bool
) -> None:
    await claim_events(ledger, make_accepted("a", 1), make_amended("a", 2, readers=BOARD))
    if is_withdrawn:
        await claim_events(ledger, make_removed("a", 3))
    attacks = [
        make_accepted("a", 4, "mine", readers=ANA, limited_to=ANA),
        make_removed("a", 5, limited_to=ANA),
    ]
    for attack in attacks:
        (refused,) = await claim_events(ledger, attack)
        assert (refused.status, refused.revived_revision) == (ClaimStatus.SUPERSEDED, None)
    # Neither the content nor the order of the attacks is known: the next one is like the first.
    (next_revision,) = await claim_events(ledger, make_accepted("a", 6, limited_to=BOARD))
    assert next_revision.status is ClaimStatus.PENDING
    (by_ana,) = await claim_events(ledger, make_accepted("a", 7, "mine", limited_to=ANA))
    # A revision without readers opens a document whose amendments a withdrawal has ended.
    assert by_ana.status is (ClaimStatus.PENDING if is_withdrawn else ClaimStatus.SUPERSEDED)


async def test_upload_projected_before_an_earlier_restriction_stays(ledger: Ledger) -> None:
    """The bound of `limit-who-reads-a-document.md`: another partition was read later."""
    upload = make_accepted("a", 3, "mine", limited_to=ANA)
    await claim_events(ledger, make_accepted("a", 1))
    (applied,) = await claim_events(ledger, upload)
    assert applied.status is ClaimStatus.PENDING
    (late,) = await claim_events(ledger, make_amended("a", 2, readers=BOARD))
    assert late.status is ClaimStatus.PENDING
    # From then on the caller is excluded, from its own upload too.
    for attempt in (make_accepted("a", 4, limited_to=ANA), make_removed("a", 5, limited_to=ANA)):
        (refused,) = await claim_events(ledger, attempt)
        assert refused.status is ClaimStatus.SUPERSEDED


async def test_caller_changes_own_document(ledger: Ledger) -> None:
    answers = await claim_events(
        ledger,
        make_accepted("a", 1, readers=ANA, limited_to=ANA),
        make_amended("a", 2, readers=BOARD, limited_to=ANA),
        make_removed("b", 1, limited_to=ANA),
    )
    assert [answer.status for answer in answers] == [ClaimStatus.PENDING] * 3
    (excluded,) = await claim_events(ledger, make_removed("a", 3, limited_to=ANA))
    assert excluded.status is ClaimStatus.SUPERSEDED


async def test_amendment_creates_no_revision(ledger: Ledger) -> None:
    await index_revision(ledger, "a", 1, ["x"])
    amended = (await claim_events(ledger, make_amended("a", 2, tags=["t"])))[0]
    assert amended.visibility_change is not None
    assert (amended.visibility_change.order, amended.visibility_change.n_chunks) == ((1, 1), 1)
    assert (await claim_events(ledger, make_accepted("a", 3)))[0].is_unchanged


async def test_null_characters_are_storable(ledger: Ledger) -> None:
    dead_letter = EventDeadLettered(
        stage="receive",
        event_id=content_id("dead_lettered"),
        original_type="a\0b",
        tenant="\0",
        position=LogPosition(topic="raw", partition=0, offset=1),
        code="X",
        detail="\0",
        remedy="\0",
        attempts=1,
        producer_event_id="\0",
        producer_source="\0",
    )
    fact = Event(
        content_id("letter"), dead_letter, "s", "e", NOW, position=Position("dead_letters", 0, 1)
    )
    rows = tuple(dead_letters.project(fact))
    assert (await ledger.claim("dead_letters", "always", [ProjectedEvent(fact, rows)]))[
        0
    ].status is ClaimStatus.PENDING
    transcribed_event = make_transcribed("a", 1, fingerprint=TRANSCRIBE_FINGERPRINT)
    transcribed_event = replace(
        transcribed_event,
        data=transcribed_event.data.model_copy(update={"language": "e\0", "media_type": "\0"}),
    )
    parts = make_chunked("a", 1, ["x"])
    parts = replace(parts, data=parts.data.model_copy(update={"language": "e\0"}))
    assert [
        answer.status
        for answer in await claim_events(ledger, make_accepted("a", 1), transcribed_event, parts)
    ] == [ClaimStatus.PENDING] * 3
