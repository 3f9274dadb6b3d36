"""What readers of sources remember: the same promises in memory and in the tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest

from schemas.ports.sources import SourceStore
from schemas.sources import Change, Floors, Left, Said
from sql.pool import close_pool, open_pool
from sql.source_state import PgSourceStore
from streams.sources.memory import MemorySourceStore

FIRST = Change("1", "notes", 1, 10, columns={"body": "text", "n": [1, None]})
SAID = Said("notes", 1, 10, 0, "digest", "1", live=True)


@pytest.fixture(params=["memory", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[SourceStore]:
    if request.param == "memory":
        yield MemorySourceStore()
        return
    pool = await open_pool(request.getfixturevalue("database"), size=4, name="test")
    yield PgSourceStore(pool)
    await close_pool(pool)


async def test_what_is_saved_is_found_with_all_that_shared_its_key(store: SourceStore) -> None:
    renamed = Change("2", "notes", 1, 20, unknown=("body",), old_key="1")
    async with store.turn("crm") as turn:
        await turn.save([FIRST, renamed, Change("9", "notes", 1, 5)], {"1": SAID})
    for key in ("1", "2"):
        async with store.turn("crm") as turn:
            rows = await turn.rows([key])
        assert {name: state.changes for name, state in rows.items()} == {"1": (FIRST,), "2": (renamed,)}
        assert rows["1"].said == SAID


async def test_a_change_that_comes_twice_stays_as_it_was_first(store: SourceStore) -> None:
    for change in (FIRST, replace(FIRST, columns={"body": "another"})):
        async with store.turn("crm") as turn:
            await turn.save([change], {})
    async with store.turn("crm") as turn:
        assert (await turn.rows(["1"]))["1"].changes == (FIRST,)


async def test_sources_know_nothing_of_each_other(store: SourceStore) -> None:
    async with store.turn("crm") as turn:
        await turn.save([FIRST], {"1": SAID})
    async with store.turn("shop") as turn:
        assert (await turn.rows(["1"]))["1"].changes == ()
    await store.forget("crm")
    async with store.turn("crm") as turn:
        assert (await turn.rows(["1"]))["1"].said is None


async def test_floors_never_sink(store: SourceStore) -> None:
    for mark in ((1, 30), (1, 20)):
        async with store.turn("crm") as turn:
            await turn.raise_floors("notes", truncated=mark)
    async with store.turn("crm") as turn:
        await turn.raise_floors("notes", read=(2, 1))
        assert await turn.floors() == {"notes": Floors(truncated=(1, 30), read=(2, 1))}


async def test_turns_of_a_source_follow_each_other(store: SourceStore) -> None:
    order: list[str] = []

    async def take(name: str) -> None:
        async with store.turn("crm") as turn:
            order.append(f"{name} in")
            await turn.rows(["1"])
            await asyncio.sleep(0.02)
            order.append(f"{name} out")

    await asyncio.gather(take("a"), take("b"))
    assert order in (["a in", "a out", "b in", "b out"], ["b in", "b out", "a in", "a out"])


async def test_what_was_said_anew_meanwhile_stays_owed(store: SourceStore) -> None:
    async with store.turn("crm") as turn:
        await turn.save([], {"1": SAID, "2": replace(SAID, external_id="2", left=(Left("o/l d", (1, 9), 2),))})
    assert await store.owed("crm", "", 10) == ["1", "2"]
    async with store.turn("crm") as turn:
        await turn.save([], {"1": replace(SAID, sequence=11)})
    await store.told("crm", {"1": SAID, "2": replace(SAID, external_id="2", left=(Left("o/l d", (1, 9), 2),))})
    assert await store.owed("crm", "", 10) == ["1"]
    async with store.turn("crm") as turn:
        said = (await turn.rows(["2"]))["2"].said
    assert said is not None and (said.left, said.owed) == ((), False)


async def test_live_rows_below_a_mark_come_page_by_page(store: SourceStore) -> None:
    said = {str(key): replace(SAID, sequence=key) for key in range(1, 6)}
    said["3"] = replace(said["3"], live=False)
    async with store.turn("crm") as turn:
        await turn.save([], said | {"7": replace(SAID, table="other")})
    assert await store.live_below("crm", "notes", (1, 5), "", 2) == ["1", "2"]
    assert await store.live_below("crm", "notes", (1, 5), "2", 2) == ["4"]


async def test_a_snapshot_is_complete_when_every_partition_has_passed_its_end(store: SourceStore) -> None:
    async with store.turn("crm") as turn:
        await turn.snapshot_ends("notes", (1, 50), "topic", {0: 10, 1: 3})
        await turn.passed("topic", 0, 12)
    assert [ended.unread for ended in await store.ended_snapshots("crm")] == [{1: (0, 3)}]
    async with store.turn("crm") as turn:
        await turn.passed("topic", 1, 3)
        await turn.passed("topic", 1, 2)
    [ended] = await store.ended_snapshots("crm")
    assert (ended.table, ended.mark, ended.topic, ended.unread) == ("notes", (1, 50), "topic", {})
    await store.snapshot_swept("crm", "notes", (1, 49))
    assert await store.ended_snapshots("crm")
    await store.snapshot_swept("crm", "notes", (1, 50))
    assert await store.ended_snapshots("crm") == []


async def test_one_owner_holds_a_source_at_a_time(store: SourceStore) -> None:
    one, two = UUID(int=1), UUID(int=2)
    assert await store.hold("crm", one, 60)
    assert not await store.hold("crm", two, 60)
    assert await store.hold("crm", one, 60)
    await store.release("crm", two)
    assert not await store.hold("crm", two, 60)
    await store.release("crm", one)
    assert await store.hold("crm", two, 60)


async def test_a_reader_has_another_name_after_its_state_was_lost(store: SourceStore) -> None:
    assert not await store.remembers("crm")
    before = await store.reader("crm")
    assert await store.remembers("crm")
    assert await store.reader("crm") == before
    await store.forget("crm")
    assert not await store.remembers("crm")
    assert await store.reader("crm") != before


async def test_notes_are_replaced_and_forgotten(store: SourceStore) -> None:
    await store.note("crm", "a", {"n": 1})
    await store.note("crm", "b", {"n": 2})
    await store.note("crm", "a", {"n": 3})
    await store.note("crm", "b", None)
    assert await store.notes("crm") == {"a": {"n": 3}}
