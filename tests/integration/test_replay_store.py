from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from sql.database import Pool, close_pool, open_pool
from sql.operations.replays import PgReplays, Replay, ReplayCounts

OWNER, OTHER = UUID(int=1), UUID(int=2)
STAGE = ("chunk", None)


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    opened = await open_pool(database, size=2, name="replays")
    yield opened
    await close_pool(opened)


async def insert_replay(pool: Pool) -> UUID:
    replay = uuid4()
    await PgReplays(pool).insert(
        Replay(
            replay,
            "default",
            "replay",
            *STAGE,
            {},
            None,
            None,
            "ocr_done",
            {0: 0},
            {0: 1000},
        ),
        1000,
    )
    return replay


async def test_replay_resumes_under_next_lease_owner(pool: Pool) -> None:
    replays, replay = PgReplays(pool), await insert_replay(pool)
    assert await replays.acquire(OWNER, [("embed", None)]) is None, (
        "of a stage that it does not host"
    )
    assert (
        await replays.acquire(OWNER, [STAGE]) is not None
        and await replays.acquire(OTHER, [STAGE]) is None
    )
    assert await replays.record_progress(
        OWNER, replay, {0: 40}, ReplayCounts(read=40, replayed=39, dead_lettered=1)
    )
    await pool.execute("update replays set lease_until = clock_timestamp() - interval '1 second'")
    found = await replays.acquire(OTHER, [STAGE])
    assert found is not None and (found.positions, found.counts) == (
        {0: 40},
        ReplayCounts(read=40, replayed=39, dead_lettered=1),
    )
    assert not await replays.record_progress(OWNER, replay, {0: 80}, ReplayCounts(read=80)), (
        "another worker has claimed it"
    )
    await replays.finish(OWNER, replay, None)
    [row] = await replays.list_replays("default", replay, 1)
    assert (row["state"], row["read"]) == ("running", 40)


async def test_paused_time_does_not_count_into_replay_rate(pool: Pool) -> None:
    replays, replay = PgReplays(pool), await insert_replay(pool)
    await replays.acquire(OWNER, [STAGE])
    await replays.record_progress(OWNER, replay, {0: 500}, ReplayCounts(read=500))
    assert await replays.set_state("default", replay, ["running"], "paused")
    assert not await replays.record_progress(OWNER, replay, {0: 510}, ReplayCounts(read=510)), (
        "what was under way is noted, and then it rests"
    )
    await pool.execute("update replays set started_at = clock_timestamp() - interval '1 day'")
    assert await replays.set_state("default", replay, ["paused"], "running")
    [waiting] = await replays.list_replays("default", replay, 1)
    assert waiting["rate"] is None, "nothing is known of the present yet"
    await replays.acquire(OTHER, [STAGE])
    await pool.execute("update replays set resumed_at = clock_timestamp() - interval '100 seconds'")
    await replays.record_progress(OTHER, replay, {0: 610}, ReplayCounts(read=610))
    [row] = await replays.list_replays("default", replay, 1)
    assert row["read"] == 610 and 0.5 < row["rate"] <= 1.0
