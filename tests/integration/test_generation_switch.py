"""A switch is atomic and loses no document, also while documents arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from schemas.errors import (
    AnabranchError,
    InvalidRequest,
    LogUnavailable,
    NotFound,
    PermanentError,
    TransientError,
)
from sql.database import Pool, close_pool, open_pool
from sql.inbox.ledger import PgLedger
from sql.index.generation_switch import (
    PublishPromotion,
    SwitchResult,
    roll_back,
    share_visibility_lock,
    switch_generation,
)
from tests.support.eventually import eventually
from tests.support.generation_copies import (
    apply_control_rows,
    built_row,
    created_row,
    dropped_row,
    promoted_row,
)
from tests.support.ledger_events import (
    G1,
    claim_events,
    make_generation,
    make_removed,
    make_revision_events,
)

G2, G3 = make_generation("g2"), make_generation("g3")


@dataclass
class FakePromotionLog:
    """A log of promotions; `hold` keeps a publisher waiting."""

    promotions: list[tuple[str, str]] = field(default_factory=list)
    publish_started: asyncio.Event = field(default_factory=asyncio.Event)
    hold: asyncio.Event | None = None
    error: AnabranchError | None = None

    async def publish(self, name: str, previous: str) -> int:
        if self.error:
            raise self.error
        self.promotions.append((name, previous))
        self.publish_started.set()
        if self.hold:
            await self.hold.wait()
        return 100 + len(self.promotions)


@pytest_asyncio.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=12, name="test")
    await apply_control_rows(
        pool,
        created_row(G1),
        *(
            row
            for g in (G2, G3)
            for row in (created_row(g, "g1", "rebuild"), built_row(g.name, {}))
        ),
    )
    yield pool
    await close_pool(pool)


async def insert_revision(
    pool: Pool, document: str, order: int, words: Sequence[str], *names: str
) -> None:
    """Insert the document once, and its derived rows for each generation."""
    accepted, *derived = make_revision_events(document, order, list(words))
    await claim_events(PgLedger(pool, G1), accepted)
    for name in names:
        await claim_events(PgLedger(pool, make_generation(name)), *derived)


async def fetch_generation_states(pool: Pool) -> tuple[str, dict[str, str]]:
    rows = await pool.fetch("select name, state from generations order by name")
    return await pool.fetchval("select name from live_generation"), {
        row["name"]: row["state"] for row in rows
    }


async def fetch_visibility_waiters(pool: Pool) -> list[bool]:
    """Return for each waiter whether it has a transaction id, which would delay log readers."""
    rows = await pool.fetch(
        "select backend_xid is not null as numbered from pg_stat_activity "
        "where wait_event_type = 'Lock' and wait_event = 'advisory' "
        "and datname = current_database()"
    )
    return [row["numbered"] for row in rows]


async def test_generation_missing_a_document_is_refused(pool: Pool) -> None:
    await insert_revision(pool, "here", 1, ["heron"], "g1", "g2")
    await insert_revision(pool, "missing", 2, ["stork"], "g1")
    decisions = FakePromotionLog()
    with pytest.raises(
        PermanentError, match="1 documents that are visible in g1 are not settled in g2: missing"
    ) as refused:
        await switch_generation(pool, "g2", decisions.publish, timeout_s=0.1)
    assert refused.value.code == "GENERATION_BEHIND"
    assert decisions.promotions == [] and await fetch_generation_states(pool) == (
        "g1",
        {"g1": "live", "g2": "shadow", "g3": "shadow"},
    )


async def test_switch_requires_same_or_later_revision_in_target(pool: Pool) -> None:
    await insert_revision(pool, "d", 1, ["heron"], "g1", "g2", "g3")
    await insert_revision(pool, "d", 2, ["stork"], "g1", "g3")
    await insert_revision(pool, "d", 3, ["crane"], "g3")
    with pytest.raises(PermanentError, match="not settled in g2"):
        await switch_generation(pool, "g2", FakePromotionLog().publish, timeout_s=0)
    assert await switch_generation(
        pool, "g3", FakePromotionLog().publish, timeout_s=0
    ) == SwitchResult("g3", "g1", has_moved=True)


async def test_withdrawn_document_does_not_block_switch(pool: Pool) -> None:
    await insert_revision(pool, "gone", 1, ["heron"], "g1")
    await claim_events(PgLedger(pool, G1), make_removed("gone", 2))
    assert (await switch_generation(pool, "g2", FakePromotionLog().publish, timeout_s=0)).has_moved


async def test_activations_wait_for_switch_without_blocking_log_readers(pool: Pool) -> None:
    await insert_revision(pool, "late", 1, ["heron"], "g1")
    decisions = FakePromotionLog()
    switching = asyncio.create_task(switch_generation(pool, "g2", decisions.publish, timeout_s=60))
    accepted, *derived = make_revision_events("new", 2, ["stork"])
    await claim_events(PgLedger(pool, G1), accepted)
    await eventually(
        lambda: pool.fetchval(
            "select count(*) from pg_locks where locktype = 'advisory' and granted"
        )
    )
    flipping = asyncio.create_task(claim_events(PgLedger(pool, G1), *derived))
    assert await eventually(lambda: fetch_visibility_waiters(pool)) == [False]
    await claim_events(PgLedger(pool, G2), *make_revision_events("late", 1, ["heron"])[1:])
    assert (await switching).has_moved and decisions.promotions == [("g2", "g1")]
    await flipping
    assert {
        row["generation"]
        for row in await pool.fetch(
            "select generation from visible v join documents d on d.id = v.document_id "
            "and external_id = 'new'"
        )
    } == {"g1"}


async def test_switch_is_invisible_while_being_published(pool: Pool) -> None:
    decisions = FakePromotionLog(hold=asyncio.Event())
    switching = asyncio.create_task(switch_generation(pool, "g2", decisions.publish))
    await decisions.publish_started.wait()
    assert await fetch_generation_states(pool) == (
        "g1",
        {"g1": "live", "g2": "shadow", "g3": "shadow"},
    )
    assert decisions.hold is not None
    decisions.hold.set()
    assert (await switching).has_moved
    assert await fetch_generation_states(pool) == (
        "g2",
        {"g1": "standby", "g2": "live", "g3": "shadow"},
    )


async def test_unpublished_promotion_changes_nothing(pool: Pool) -> None:
    with pytest.raises(LogUnavailable):
        await switch_generation(pool, "g2", FakePromotionLog(error=LogUnavailable("away")).publish)
    assert await fetch_generation_states(pool) == (
        "g1",
        {"g1": "live", "g2": "shadow", "g3": "shadow"},
    )
    assert await fetch_visibility_waiters(pool) == []
    await insert_revision(pool, "d", 1, ["heron"], "g1")


async def test_switch_interrupted_after_publish_completes_from_log(pool: Pool) -> None:
    decisions = FakePromotionLog(hold=asyncio.Event())
    switching = asyncio.create_task(switch_generation(pool, "g2", decisions.publish))
    await decisions.publish_started.wait()
    switching.cancel()
    await asyncio.gather(switching, return_exceptions=True)
    assert (await fetch_generation_states(pool))[0] == "g1"
    await apply_control_rows(pool, promoted_row("g2", 101))
    assert await fetch_generation_states(pool) == (
        "g2",
        {"g1": "standby", "g2": "live", "g3": "shadow"},
    )
    assert (await roll_back(pool, make_publisher(200))).generation == "g1"


async def test_late_promotion_does_not_undo_rollback(pool: Pool) -> None:
    decisions = FakePromotionLog()
    await switch_generation(pool, "g2", decisions.publish)
    await roll_back(pool, decisions.publish)
    await apply_control_rows(pool, promoted_row("g2", 101), promoted_row("g1", 102))
    assert decisions.promotions == [("g2", "g1"), ("g1", "g2")]
    assert await fetch_generation_states(pool) == (
        "g1",
        {"g1": "live", "g2": "standby", "g3": "shadow"},
    )


async def test_rollback_requires_later_documents_and_is_reversible(pool: Pool) -> None:
    await insert_revision(pool, "old", 1, ["heron"], "g1", "g2")
    decisions = FakePromotionLog()
    await switch_generation(pool, "g2", decisions.publish)
    await insert_revision(pool, "new", 2, ["stork"], "g2")
    with pytest.raises(PermanentError, match="new") as refused:
        await roll_back(pool, decisions.publish, timeout_s=0)
    assert refused.value.code == "GENERATION_BEHIND"
    await claim_events(PgLedger(pool, G1), *make_revision_events("new", 2, ["stork"])[1:])
    assert await roll_back(pool, decisions.publish) == SwitchResult("g1", "g2", has_moved=True)
    assert await roll_back(pool, decisions.publish) == SwitchResult("g2", "g1", has_moved=True)


async def test_rollback_to_dropped_or_missing_generation_is_refused(pool: Pool) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await roll_back(pool, FakePromotionLog().publish)
    await switch_generation(pool, "g2", FakePromotionLog().publish)
    await apply_control_rows(pool, dropped_row("g1"))
    with pytest.raises(InvalidRequest) as again:
        await roll_back(pool, FakePromotionLog().publish)
    assert refused.value.code == again.value.code == "NO_PREVIOUS_GENERATION"


async def test_promotion_of_building_unknown_or_dropped_generation_is_refused(pool: Pool) -> None:
    await apply_control_rows(
        pool, created_row(make_generation("g4"), "g1", "reindex"), dropped_row("g3")
    )
    with pytest.raises(InvalidRequest) as building:
        await switch_generation(pool, "g4", FakePromotionLog().publish)
    assert building.value.code == "GENERATION_NOT_BUILT"
    for unknown in ("g3", "g9"):
        with pytest.raises(NotFound):
            await switch_generation(pool, unknown, FakePromotionLog().publish)
    assert await switch_generation(
        pool, "g1", FakePromotionLog(error=LogUnavailable("not asked")).publish
    ) == SwitchResult("g1", None, has_moved=False)


async def test_switch_times_out_on_long_activation(pool: Pool) -> None:
    async with pool.acquire() as stuck, stuck.transaction():
        await share_visibility_lock(stuck, "g1")
        with pytest.raises(TransientError) as refused:
            await switch_generation(pool, "g2", FakePromotionLog().publish, timeout_s=0)
        assert refused.value.code == "VISIBILITY_LOCKED"
        await insert_revision(pool, "d", 1, ["heron"], "g1")
    assert (await fetch_generation_states(pool))[0] == "g1"


async def test_gate_against_outdated_live_generation_is_refused(pool: Pool) -> None:
    await switch_generation(pool, "g2", FakePromotionLog().publish)
    with pytest.raises(TransientError) as refused:
        await switch_generation(pool, "g3", FakePromotionLog().publish, expected_live="g1")
    assert refused.value.code == "SWITCHED_MEANWHILE"
    assert (await switch_generation(pool, "g3", make_publisher(300), expected_live="g2")).has_moved


async def test_concurrent_switches_conflict(pool: Pool) -> None:
    decisions = FakePromotionLog(hold=asyncio.Event())
    first = asyncio.create_task(switch_generation(pool, "g2", decisions.publish))
    await decisions.publish_started.wait()
    second = asyncio.create_task(switch_generation(pool, "g3", decisions.publish))
    await eventually(
        lambda: pool.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and wait_event_type = 'Lock'"
        )
    )
    assert decisions.hold is not None
    decisions.hold.set()
    answers = await asyncio.gather(first, second, return_exceptions=True)
    assert len(decisions.promotions) == 1
    assert sorted(type(answer) for answer in answers if isinstance(answer, BaseException)) == [
        TransientError
    ]


def make_publisher(offset: int) -> PublishPromotion:
    async def publish(name: str, previous: str) -> int:
        return offset

    return publish
