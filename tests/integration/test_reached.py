"""What tables know of the places of their readers, and what they make of it that they know less than before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from schemas.errors import FatalError
from sql.pool import Pool, close_pool, open_pool
from sql.reached import PgReached

PLACE = ("g", "things")


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=2, name="test")
    yield pool
    await close_pool(pool)


async def noted(pool: Pool, *offsets: dict[int, int]) -> PgReached:
    reached = PgReached(pool)
    for some in offsets:
        await reached.note(*PLACE, some)
    return reached


async def test_places_are_kept_by_partition_and_never_sink(pool: Pool) -> None:
    await noted(pool, {0: 5, 1: 7}, {1: 9}, {0: 4})
    assert await PgReached(pool).known(*PLACE) == {0: 5, 1: 9}
    assert await PgReached(pool).known("g", "others") == {}


async def test_another_reader_may_know_more(pool: Pool) -> None:
    first, second = await noted(pool, {0: 5}), await noted(pool, {0: 8})
    await first.note(*PLACE, {0: 6})
    await first.check()
    await second.note(*PLACE, {0: 9})
    assert await first.known(*PLACE) == {0: 9}


@pytest.mark.parametrize("backup", ["update groups_reached set next_offset = 4", "delete from groups_reached"])
@pytest.mark.parametrize("asked", ["note", "known", "check"])
async def test_tables_that_know_less_than_before_are_noticed_and_nothing_is_noted_in_them(pool: Pool, backup: str, asked: str) -> None:
    reached = await noted(pool, {0: 5})
    await pool.execute(backup)
    before = await PgReached(pool).known(*PLACE)
    calls = {"note": lambda: reached.note(*PLACE, {0: 6, 1: 1}), "known": lambda: reached.known(*PLACE), "check": reached.check}
    with pytest.raises(FatalError) as noticed:
        await calls[asked]()
    assert noticed.value.code == "TABLES_RESTORED" and "partition 0" in noticed.value.detail
    assert await PgReached(pool).known(*PLACE) == before


async def test_tables_in_which_a_place_is_found_must_not_lose_it(pool: Pool) -> None:
    await noted(pool, {0: 5})
    reached = PgReached(pool)
    await reached.known(*PLACE)
    await pool.execute("delete from groups_reached")
    with pytest.raises(FatalError):
        await reached.note(*PLACE, {0: 6})


class SlowLooks:
    """A pool: what the next look finds arrives when more has been noted already."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def fetch(self, query: str, *parameters: Any) -> list[Any]:
        meanwhile, self.meanwhile = self.meanwhile, None
        rows: list[Any] = await self._pool.fetch(query, *parameters)
        if meanwhile:
            await meanwhile()
        return rows


@pytest.mark.parametrize("asked", ["known", "check"])
async def test_what_is_noted_while_the_tables_are_looked_at_is_not_missed_in_them(pool: Pool, asked: str) -> None:
    looks = SlowLooks(pool)
    reached = PgReached(cast(Pool, looks))
    await reached.note(*PLACE, {0: 5})
    looks.meanwhile = lambda: reached.note(*PLACE, {0: 9})
    await (reached.known(*PLACE) if asked == "known" else reached.check())
    await pool.execute("update groups_reached set next_offset = 8")
    with pytest.raises(FatalError, match="knew of 9"):
        await reached.check()
