"""Stored consumer offsets, and the detection of tables restored from a backup."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from schemas.errors import FatalError
from sql.database import Pool, close_pool, open_pool
from sql.log.offset_store import PgOffsetStore

GROUP_AND_TOPIC = ("g", "things")


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    pool = await open_pool(database, size=2, name="test")
    yield pool
    await close_pool(pool)


async def record_offsets(pool: Pool, *offsets: dict[int, int]) -> PgOffsetStore:
    reached = PgOffsetStore(pool)
    for some in offsets:
        await reached.store_offsets(*GROUP_AND_TOPIC, some)
    return reached


async def test_offsets_are_stored_per_partition_and_never_decrease(pool: Pool) -> None:
    await record_offsets(pool, {0: 5, 1: 7}, {1: 9}, {0: 4})
    assert await PgOffsetStore(pool).fetch_offsets(*GROUP_AND_TOPIC) == {0: 5, 1: 9}
    assert await PgOffsetStore(pool).fetch_offsets("g", "others") == {}


async def test_offsets_advanced_by_another_process_are_not_lost(pool: Pool) -> None:
    first, second = await record_offsets(pool, {0: 5}), await record_offsets(pool, {0: 8})
    await first.store_offsets(*GROUP_AND_TOPIC, {0: 6})
    await first.check_not_restored()
    await second.store_offsets(*GROUP_AND_TOPIC, {0: 9})
    assert await first.fetch_offsets(*GROUP_AND_TOPIC) == {0: 9}


@pytest.mark.parametrize(
    "backup", ["update consumer_offsets set next_offset = 4", "delete from consumer_offsets"]
)
@pytest.mark.parametrize("call", ["store", "fetch", "check"])
async def test_restored_tables_are_detected_and_not_written(
    pool: Pool, backup: str, call: str
) -> None:
    reached = await record_offsets(pool, {0: 5})
    await pool.execute(backup)
    before = await PgOffsetStore(pool).fetch_offsets(*GROUP_AND_TOPIC)
    calls = {
        "store": lambda: reached.store_offsets(*GROUP_AND_TOPIC, {0: 6, 1: 1}),
        "fetch": lambda: reached.fetch_offsets(*GROUP_AND_TOPIC),
        "check": reached.check_not_restored,
    }
    with pytest.raises(FatalError) as noticed:
        await calls[call]()
    assert noticed.value.code == "TABLES_RESTORED" and "partition 0" in noticed.value.detail
    assert await PgOffsetStore(pool).fetch_offsets(*GROUP_AND_TOPIC) == before


async def test_losing_a_stored_offset_is_detected(pool: Pool) -> None:
    await record_offsets(pool, {0: 5})
    reached = PgOffsetStore(pool)
    await reached.fetch_offsets(*GROUP_AND_TOPIC)
    await pool.execute("delete from consumer_offsets")
    with pytest.raises(FatalError):
        await reached.store_offsets(*GROUP_AND_TOPIC, {0: 6})


class SlowQueryPool:
    """A pool that runs a callback between a query and its result."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.on_fetch: Callable[[], Awaitable[None]] | None = None

    async def fetch(self, query: str, *parameters: Any) -> list[Any]:
        meanwhile, self.on_fetch = self.on_fetch, None
        rows: list[Any] = await self._pool.fetch(query, *parameters)
        if meanwhile:
            await meanwhile()
        return rows


@pytest.mark.parametrize("call", ["fetch", "check"])
async def test_offset_stored_during_check_is_remembered(pool: Pool, call: str) -> None:
    looks = SlowQueryPool(pool)
    reached = PgOffsetStore(cast(Pool, looks))
    await reached.store_offsets(*GROUP_AND_TOPIC, {0: 5})
    looks.on_fetch = lambda: reached.store_offsets(*GROUP_AND_TOPIC, {0: 9})
    await (
        reached.fetch_offsets(*GROUP_AND_TOPIC) if call == "fetch" else reached.check_not_restored()
    )
    await pool.execute("update consumer_offsets set next_offset = 8")
    with pytest.raises(FatalError, match="were at 9 before"):
        await reached.check_not_restored()
