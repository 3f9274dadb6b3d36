from __future__ import annotations

import asyncio

import pytest

from services.monitoring.shared_result import SharedResult


async def test_concurrent_callers_share_one_query_and_its_result() -> None:
    calls, released = 0, asyncio.Event()

    async def fetch() -> int:
        nonlocal calls
        calls += 1
        await released.wait()
        return calls

    shared = SharedResult(fetch, max_age_s=60)
    callers = [asyncio.create_task(shared.get()) for _ in range(5)]
    await asyncio.sleep(0)
    # One that disconnects does not take the result from the others.
    callers[0].cancel()
    released.set()
    assert await asyncio.gather(*callers[1:]) == [1, 1, 1, 1]
    assert await shared.get() == 1 and calls == 1


async def test_result_expires_by_age() -> None:
    calls = 0

    async def fetch() -> int:
        nonlocal calls
        calls += 1
        return calls

    shared = SharedResult(fetch, max_age_s=0.0)
    assert await shared.get() == 1
    await asyncio.sleep(0.01)
    assert await shared.get() == 2


async def test_error_is_raised_to_its_callers_and_not_kept() -> None:
    outcomes: list[Exception | str] = [RuntimeError("down"), "up"]

    async def fetch() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    shared = SharedResult(fetch, max_age_s=60)
    with pytest.raises(RuntimeError, match="down"):
        await shared.get()
    await asyncio.sleep(0.01)
    assert await shared.get() == "up"
