from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from sql.pool import Pool, close_pool, open_pool
from sql.replays import PgReplays, Replay, Tally

OWNER, OTHER = UUID(int=1), UUID(int=2)
STAGE = ("chunk", None)


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    opened = await open_pool(database, size=2, name="replays")
    yield opened
    await close_pool(opened)


async def begun(pool: Pool) -> UUID:
    replay = uuid4()
    nothing: dict[int, int] = {}
    await PgReplays(pool).begin(Replay(replay, "default", "replay", *STAGE, {}, None, None, "ocr_done", {0: 0}, {0: 1000}, nothing, Tally()), 1000)
    return replay


async def test_one_works_on_a_replay_until_its_lease_ends_and_the_next_goes_on_where_it_was(pool: Pool) -> None:
    replays, replay = PgReplays(pool), await begun(pool)
    assert await replays.lease(OWNER, [("embed", None)]) is None, "of a stage that it does not host"
    assert await replays.lease(OWNER, [STAGE]) is not None and await replays.lease(OTHER, [STAGE]) is None
    assert await replays.went_on(OWNER, replay, {0: 40}, Tally(read=40, replayed=39, buried=1))
    await pool.execute("update replays set lease_until = clock_timestamp() - interval '1 second'")
    found = await replays.lease(OTHER, [STAGE])
    assert found is not None and (found.places, found.tally) == ({0: 40}, Tally(read=40, replayed=39, buried=1))
    assert not await replays.went_on(OWNER, replay, {0: 80}, Tally(read=80)), "it is somebody else's now"
    await replays.end(OWNER, replay, None)
    [row] = await replays.shown("default", replay, 1)
    assert (row["state"], row["read"]) == ("running", 40)


async def test_how_long_a_replay_was_paused_says_nothing_of_how_fast_it_is(pool: Pool) -> None:
    replays, replay = PgReplays(pool), await begun(pool)
    await replays.lease(OWNER, [STAGE])
    await replays.went_on(OWNER, replay, {0: 500}, Tally(read=500))
    assert await replays.set_state("default", replay, ["running"], "paused")
    assert not await replays.went_on(OWNER, replay, {0: 510}, Tally(read=510)), "what was under way is noted, and then it rests"
    await pool.execute("update replays set began_at = clock_timestamp() - interval '1 day'")
    assert await replays.set_state("default", replay, ["paused"], "running")
    [waiting] = await replays.shown("default", replay, 1)
    assert waiting["rate"] is None, "nothing is known of the present yet"
    await replays.lease(OTHER, [STAGE])
    await pool.execute("update replays set resumed_at = clock_timestamp() - interval '100 seconds'")
    await replays.went_on(OTHER, replay, {0: 610}, Tally(read=610))
    [row] = await replays.shown("default", replay, 1)
    assert row["read"] == 610 and 0.5 < row["rate"] <= 1.0
