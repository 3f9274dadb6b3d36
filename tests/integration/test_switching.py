"""The switch loses no document, and leaves no doubt: everything or nothing, also while documents arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from schemas.errors import AnabranchError, InvalidRequest, LogUnavailable, NotFound, PermanentError, TransientError
from schemas.rows import BuiltRow, DroppedRow, GenerationRow, LiveRow
from sql.flips import share_flips
from sql.ledger import PgLedger
from sql.pool import Pool, close_pool, open_pool
from sql.switching import PublishPromotion, Switched, roll_back, switch
from tests.contract.ledger_facts import removed
from tests.integration.test_ledger import G1, claim, decide, generation, revision

G2, G3 = generation("g2"), generation("g3")


@dataclass
class Decisions:
    """A log of promotions; `hold` keeps a publisher waiting."""

    said: list[tuple[str, str]] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    hold: asyncio.Event | None = None
    error: AnabranchError | None = None

    async def publish(self, name: str, previous: str) -> int:
        if self.error:
            raise self.error
        self.said.append((name, previous))
        self.reached.set()
        if self.hold:
            await self.hold.wait()
        return 100 + len(self.said)


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=12, name="test")
    await decide(pool, GenerationRow(G1), *(row for g in (G2, G3) for row in (GenerationRow(g, "g1", "rebuild"), BuiltRow(g.name, {}))))
    yield pool
    await close_pool(pool)


async def load(pool: Pool, document: str, order: int, words: Sequence[str], *names: str) -> None:
    """As the stages do: the document once, what is derived from it for each generation."""
    accepted, *derived = revision(document, order, list(words))
    await claim(PgLedger(pool, G1), accepted)
    for name in names:
        await claim(PgLedger(pool, generation(name)), *derived)


async def live(pool: Pool) -> tuple[str, dict[str, str]]:
    rows = await pool.fetch("select name, state from generations order by name")
    return await pool.fetchval("select name from live_generation"), {row["name"]: row["state"] for row in rows}


async def waiting_for_flips(pool: Pool) -> list[bool]:
    """Of those who wait: whether they have a transaction id, for which the readers of the log would wait."""
    rows = await pool.fetch(
        "select backend_xid is not null as numbered from pg_stat_activity where wait_event_type = 'Lock' and wait_event = 'advisory' "
        "and datname = current_database()"
    )
    return [row["numbered"] for row in rows]


async def test_a_generation_that_misses_a_document_is_refused_by_name_and_nothing_is_decided(pool: Pool) -> None:
    await load(pool, "here", 1, ["heron"], "g1", "g2")
    await load(pool, "missing", 2, ["stork"], "g1")
    decisions = Decisions()
    with pytest.raises(PermanentError, match="1 documents that g1 shows are not settled in g2: missing") as refused:
        await switch(pool, "g2", decisions.publish, patience_s=0.1)
    assert refused.value.code == "GENERATION_BEHIND"
    assert decisions.said == [] and await live(pool) == ("g1", {"g1": "live", "g2": "shadow", "g3": "shadow"})


async def test_an_older_revision_in_the_target_is_not_settled_and_a_later_one_is(pool: Pool) -> None:
    await load(pool, "d", 1, ["heron"], "g1", "g2", "g3")
    await load(pool, "d", 2, ["stork"], "g1", "g3")
    await load(pool, "d", 3, ["crane"], "g3")
    with pytest.raises(PermanentError, match="not settled in g2"):
        await switch(pool, "g2", Decisions().publish, patience_s=0)
    assert await switch(pool, "g3", Decisions().publish, patience_s=0) == Switched("g3", "g1", moved=True)


async def test_a_withdrawn_document_is_missed_by_nobody(pool: Pool) -> None:
    await load(pool, "gone", 1, ["heron"], "g1")
    await claim(PgLedger(pool, G1), removed("gone", 2))
    assert (await switch(pool, "g2", Decisions().publish, patience_s=0)).moved


async def test_flips_of_the_live_generation_wait_until_the_target_has_caught_up_and_hold_up_no_reader_of_the_log(pool: Pool) -> None:
    await load(pool, "late", 1, ["heron"], "g1")
    decisions = Decisions()
    switching = asyncio.create_task(switch(pool, "g2", decisions.publish, patience_s=60))
    accepted, *derived = revision("new", 2, ["stork"])
    await claim(PgLedger(pool, G1), accepted)
    while not await pool.fetchval("select count(*) from pg_locks where locktype = 'advisory' and granted"):
        await asyncio.sleep(0.01)
    flipping = asyncio.create_task(claim(PgLedger(pool, G1), *derived))
    while not (waiting := await waiting_for_flips(pool)):
        await asyncio.sleep(0.01)
    assert waiting == [False]
    await claim(PgLedger(pool, G2), *revision("late", 1, ["heron"])[1:])
    assert (await switching).moved and decisions.said == [("g2", "g1")]
    await flipping
    assert {
        row["generation"] for row in await pool.fetch("select generation from visible v join documents d on d.id = v.document_id and external_id = 'new'")
    } == {"g1"}


async def test_nobody_sees_half_a_switch_while_it_is_being_published(pool: Pool) -> None:
    decisions = Decisions(hold=asyncio.Event())
    switching = asyncio.create_task(switch(pool, "g2", decisions.publish))
    await decisions.reached.wait()
    assert await live(pool) == ("g1", {"g1": "live", "g2": "shadow", "g3": "shadow"})
    assert decisions.hold is not None
    decisions.hold.set()
    assert (await switching).moved
    assert await live(pool) == ("g2", {"g1": "standby", "g2": "live", "g3": "shadow"})


async def test_a_decision_that_the_log_does_not_take_changes_nothing(pool: Pool) -> None:
    with pytest.raises(LogUnavailable):
        await switch(pool, "g2", Decisions(error=LogUnavailable("away")).publish)
    assert await live(pool) == ("g1", {"g1": "live", "g2": "shadow", "g3": "shadow"})
    assert await waiting_for_flips(pool) == []
    await load(pool, "d", 1, ["heron"], "g1")


async def test_a_crash_behind_the_decision_is_completed_by_whoever_reads_it(pool: Pool) -> None:
    decisions = Decisions(hold=asyncio.Event())
    switching = asyncio.create_task(switch(pool, "g2", decisions.publish))
    await decisions.reached.wait()
    switching.cancel()
    await asyncio.gather(switching, return_exceptions=True)
    assert (await live(pool))[0] == "g1"
    await decide(pool, LiveRow("g2", 101))
    assert await live(pool) == ("g2", {"g1": "standby", "g2": "live", "g3": "shadow"})
    assert (await roll_back(pool, decisions_after(200))).generation == "g1"


async def test_a_decision_that_is_read_late_does_not_undo_a_rollback(pool: Pool) -> None:
    decisions = Decisions()
    await switch(pool, "g2", decisions.publish)
    await roll_back(pool, decisions.publish)
    await decide(pool, LiveRow("g2", 101), LiveRow("g1", 102))
    assert decisions.said == [("g2", "g1"), ("g1", "g2")]
    assert await live(pool) == ("g1", {"g1": "live", "g2": "standby", "g3": "shadow"})


async def test_a_rollback_loses_nothing_that_came_since_and_leads_there_and_back(pool: Pool) -> None:
    await load(pool, "old", 1, ["heron"], "g1", "g2")
    decisions = Decisions()
    await switch(pool, "g2", decisions.publish)
    await load(pool, "new", 2, ["stork"], "g2")
    with pytest.raises(PermanentError, match="new"):
        await roll_back(pool, decisions.publish, patience_s=0)
    await claim(PgLedger(pool, G1), *revision("new", 2, ["stork"])[1:])
    assert await roll_back(pool, decisions.publish) == Switched("g1", "g2", moved=True)
    assert await roll_back(pool, decisions.publish) == Switched("g2", "g1", moved=True)


async def test_there_is_no_way_back_to_a_dropped_generation_nor_before_the_first(pool: Pool) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await roll_back(pool, Decisions().publish)
    await switch(pool, "g2", Decisions().publish)
    await decide(pool, DroppedRow("g1"))
    with pytest.raises(InvalidRequest) as again:
        await roll_back(pool, Decisions().publish)
    assert refused.value.code == again.value.code == "NO_PREVIOUS_GENERATION"


async def test_what_is_building_unknown_or_dropped_is_not_promoted_and_the_live_one_need_not_be(pool: Pool) -> None:
    await decide(pool, GenerationRow(generation("g4"), "g1", "reindex"), DroppedRow("g3"))
    with pytest.raises(InvalidRequest) as building:
        await switch(pool, "g4", Decisions().publish)
    assert building.value.code == "GENERATION_NOT_BUILT"
    for unknown in ("g3", "g9"):
        with pytest.raises(NotFound):
            await switch(pool, unknown, Decisions().publish)
    assert await switch(pool, "g1", Decisions(error=LogUnavailable("not asked")).publish) == Switched("g1", None, moved=False)


async def test_a_flip_that_does_not_end_is_not_waited_for_longer_than_others_may_wait(pool: Pool) -> None:
    async with pool.acquire() as stuck, stuck.transaction():
        await share_flips(stuck, "g1")
        with pytest.raises(TransientError) as refused:
            await switch(pool, "g2", Decisions().publish, patience_s=0)
        assert refused.value.code == "FLIPS_UNDER_WAY"
        await load(pool, "d", 1, ["heron"], "g1")
    assert (await live(pool))[0] == "g1"


async def test_a_gate_that_was_held_against_another_generation_does_not_count(pool: Pool) -> None:
    await switch(pool, "g2", Decisions().publish)
    with pytest.raises(TransientError) as refused:
        await switch(pool, "g3", Decisions().publish, over="g1")
    assert refused.value.code == "SWITCHED_MEANWHILE"
    assert (await switch(pool, "g3", decisions_after(300), over="g2")).moved


async def test_of_two_switches_at_once_one_is_told_to_decide_again(pool: Pool) -> None:
    decisions = Decisions(hold=asyncio.Event())
    first = asyncio.create_task(switch(pool, "g2", decisions.publish))
    await decisions.reached.wait()
    second = asyncio.create_task(switch(pool, "g3", decisions.publish))
    async with asyncio.timeout(60):
        while not await pool.fetchval("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"):
            await asyncio.sleep(0.01)
    assert decisions.hold is not None
    decisions.hold.set()
    answers = await asyncio.gather(first, second, return_exceptions=True)
    assert len(decisions.said) == 1
    assert sorted(type(answer) for answer in answers if isinstance(answer, BaseException)) == [TransientError]


def decisions_after(offset: int) -> PublishPromotion:
    async def publish(name: str, previous: str) -> int:
        return offset

    return publish
