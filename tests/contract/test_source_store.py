"""Contract of the source store, run in memory and against Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest

from schemas.ports.sources import SourceStore
from schemas.sources import EmittedState, ReleasedId, RowChange, TableFloors
from sql.catalog.sources import PgSourceStore
from sql.database import close_pool, open_pool
from tests.fakes.memory_source_store import MemorySourceStore

FIRST = RowChange("1", "notes", 1, 10, columns={"body": "text", "n": [1, None]})
EMITTED = EmittedState("notes", 1, 10, 0, "digest", "1", is_live=True)


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[SourceStore]:
    if request.param == "memory":
        yield MemorySourceStore()
        return
    database = request.getfixturevalue("database")
    pool = await open_pool(database, size=4, name="test")
    yield PgSourceStore(pool, database)
    await close_pool(pool)


async def test_saved_changes_are_found_under_each_key(store: SourceStore) -> None:
    renamed = RowChange("2", "notes", 1, 20, unchanged_columns=("body",), old_key="1")
    async with store.begin_transaction("crm") as turn:
        await turn.save_changes([FIRST, renamed, RowChange("9", "notes", 1, 5)], {"1": EMITTED})
    for key in ("1", "2"):
        async with store.begin_transaction("crm") as turn:
            rows = await turn.fetch_rows([key])
        assert {name: state.changes for name, state in rows.items()} == {
            "1": (FIRST,),
            "2": (renamed,),
        }
        assert rows["1"].emitted == EMITTED


async def test_duplicate_change_keeps_first_version(store: SourceStore) -> None:
    for change in (FIRST, replace(FIRST, columns={"body": "another"})):
        async with store.begin_transaction("crm") as turn:
            await turn.save_changes([change], {})
    async with store.begin_transaction("crm") as turn:
        assert (await turn.fetch_rows(["1"]))["1"].changes == (FIRST,)


async def test_sources_are_isolated(store: SourceStore) -> None:
    async with store.begin_transaction("crm") as turn:
        await turn.save_changes([FIRST], {"1": EMITTED})
    async with store.begin_transaction("shop") as turn:
        assert (await turn.fetch_rows(["1"]))["1"].changes == ()
    await store.delete_state("crm")
    async with store.begin_transaction("crm") as turn:
        assert (await turn.fetch_rows(["1"]))["1"].emitted is None


async def test_floors_only_increase(store: SourceStore) -> None:
    for mark in ((1, 30), (1, 20)):
        async with store.begin_transaction("crm") as turn:
            await turn.raise_floors("notes", truncated_at=mark)
    async with store.begin_transaction("crm") as turn:
        await turn.raise_floors("notes", snapshot_started_at=(2, 1))
        assert await turn.fetch_floors() == {
            "notes": TableFloors(truncated_at=(1, 30), snapshot_started_at=(2, 1))
        }


async def test_turns_of_one_source_are_serialized(store: SourceStore) -> None:
    order: list[str] = []

    async def take(name: str) -> None:
        async with store.begin_transaction("crm") as turn:
            order.append(f"{name} in")
            await turn.fetch_rows(["1"])
            await asyncio.sleep(0.02)
            order.append(f"{name} out")

    await asyncio.gather(take("a"), take("b"))
    assert order in (["a in", "a out", "b in", "b out"], ["b in", "b out", "a in", "a out"])


async def test_event_emitted_again_meanwhile_stays_pending(store: SourceStore) -> None:
    async with store.begin_transaction("crm") as turn:
        await turn.save_changes(
            [],
            {
                "1": EMITTED,
                "2": replace(
                    EMITTED, external_id="2", released_ids=(ReleasedId("o/l d", (1, 9), 2),)
                ),
            },
        )
    assert await store.fetch_pending("crm", "", 10) == ["1", "2"]
    async with store.begin_transaction("crm") as turn:
        await turn.save_changes([], {"1": replace(EMITTED, sequence=11)})
    await store.mark_emitted(
        "crm",
        {
            "1": EMITTED,
            "2": replace(EMITTED, external_id="2", released_ids=(ReleasedId("o/l d", (1, 9), 2),)),
        },
    )
    assert await store.fetch_pending("crm", "", 10) == ["1"]
    async with store.begin_transaction("crm") as turn:
        emitted = (await turn.fetch_rows(["2"]))["2"].emitted
    assert emitted is not None and (emitted.released_ids, emitted.is_pending) == ((), False)


async def test_live_rows_below_mark_are_paged(store: SourceStore) -> None:
    emitted_by_key = {str(key): replace(EMITTED, sequence=key) for key in range(1, 6)}
    emitted_by_key["3"] = replace(emitted_by_key["3"], is_live=False)
    async with store.begin_transaction("crm") as turn:
        await turn.save_changes([], emitted_by_key | {"7": replace(EMITTED, table="other")})
    assert await store.fetch_live_below("crm", "notes", (1, 5), "", 2) == ["1", "2"]
    assert await store.fetch_live_below("crm", "notes", (1, 5), "2", 2) == ["4"]


async def test_snapshot_completes_when_all_partitions_pass_end(store: SourceStore) -> None:
    async with store.begin_transaction("crm") as turn:
        await turn.record_snapshot_end("notes", (1, 50), "topic", {0: 10, 1: 3})
        await turn.record_progress("topic", 0, 12)
    assert [ended.unread_offsets for ended in await store.fetch_ended_snapshots("crm")] == [
        {1: (0, 3)}
    ]
    async with store.begin_transaction("crm") as turn:
        await turn.record_progress("topic", 1, 3)
        await turn.record_progress("topic", 1, 2)
    [ended] = await store.fetch_ended_snapshots("crm")
    assert (ended.table, ended.mark, ended.topic, ended.unread_offsets) == (
        "notes",
        (1, 50),
        "topic",
        {},
    )
    await store.mark_snapshot_swept("crm", "notes", (1, 49))
    assert await store.fetch_ended_snapshots("crm")
    await store.mark_snapshot_swept("crm", "notes", (1, 50))
    assert await store.fetch_ended_snapshots("crm") == []


async def test_source_lease_has_one_owner(store: SourceStore) -> None:
    one, two = UUID(int=1), UUID(int=2)
    async with store.open_session(one) as lost:
        assert await store.acquire_lease("crm", one, 60)
        assert not await store.acquire_lease("crm", two, 60)
        assert await store.acquire_lease("crm", one, 60)
        await store.release_lease("crm", two)
        assert not await store.acquire_lease("crm", two, 60)
        await store.release_lease("crm", one)
        assert await store.acquire_lease("crm", two, 60)
        assert not lost.is_set()


async def test_lease_of_ended_session_is_acquired_at_once(store: SourceStore) -> None:
    one, two = UUID(int=1), UUID(int=2)
    async with store.open_session(one):
        assert await store.acquire_lease("crm", one, 60)
        async with store.open_session(two):
            assert not await store.acquire_lease("crm", two, 60)
    async with store.open_session(two):
        # The server ends a closed connection a moment later.
        async with asyncio.timeout(30):
            while not await store.acquire_lease("crm", two, 60):
                await asyncio.sleep(0.01)


async def test_terminated_connection_is_a_lost_session(database: str) -> None:
    pool = await open_pool(database, size=1, name="test")
    try:
        async with PgSourceStore(pool, database).open_session(UUID(int=1)) as lost:
            assert await pool.fetchval(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = "
                f"'anabranch sources {UUID(int=1)}'"
            )
            async with asyncio.timeout(30):
                await lost.wait()
    finally:
        await close_pool(pool)


async def test_reader_id_changes_after_state_loss(store: SourceStore) -> None:
    assert not await store.has_state("crm")
    before = await store.fetch_state_id("crm")
    assert await store.has_state("crm")
    assert await store.fetch_state_id("crm") == before
    await store.delete_state("crm")
    assert not await store.has_state("crm")
    assert await store.fetch_state_id("crm") != before


async def test_notes_are_replaced_and_deleted(store: SourceStore) -> None:
    await store.set_note("crm", "a", {"n": 1})
    await store.set_note("crm", "b", {"n": 2})
    await store.set_note("crm", "a", {"n": 3})
    await store.set_note("crm", "b", None)
    assert await store.fetch_notes("crm") == {"a": {"n": 3}}


async def test_several_notes_are_stored_at_once(store: SourceStore) -> None:
    await store.set_note("crm", "a", {"n": 1})
    await store.set_notes("crm", {"a": {"n": 2}, "b": {"text": "Ă©\n", "list": [1, None]}})
    await store.set_notes("crm", {})
    assert await store.fetch_notes("crm") == {
        "a": {"n": 2},
        "b": {"text": "Ă©\n", "list": [1, None]},
    }
    assert await store.fetch_notes("erp") == {}
