"""Concurrent calls that share one statement."""

from __future__ import annotations

import asyncio

import pytest

from schemas.batching import CallBatcher
from schemas.errors import DatabaseUnavailable, TransientError


class Doubler:
    """Doubles numbers, and records its batches. Fails for the numbers in `failures`."""

    def __init__(self, failures: dict[int, Exception] | None = None) -> None:
        self.batches: list[list[int]] = []
        self.failures = failures or {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, numbers: list[int]) -> list[int]:
        self.batches.append(numbers)
        await self.gate.wait()
        for number in numbers:
            if number in self.failures:
                raise self.failures[number]
        return [2 * number for number in numbers]


async def test_calls_during_a_batch_form_the_next_one() -> None:
    doubler = Doubler()
    batcher = CallBatcher(doubler, max_calls=3)
    doubler.gate.clear()
    first = asyncio.create_task(batcher.run(1))
    while not doubler.batches:
        await asyncio.sleep(0)
    others = [asyncio.create_task(batcher.run(number)) for number in (2, 3, 4, 5)]
    await asyncio.sleep(0)
    doubler.gate.set()
    assert await asyncio.gather(first, *others) == [2, 4, 6, 8, 10]
    assert doubler.batches == [[1], [2, 3, 4], [5]]
    assert await batcher.run(7) == 14


async def test_only_the_culprit_of_a_batch_fails() -> None:
    doubler = Doubler({2: ValueError("two")})
    batcher = CallBatcher(doubler)
    results = await asyncio.gather(*map(batcher.run, (1, 2, 3)), return_exceptions=True)
    assert results[0] == 2 and results[2] == 6
    assert isinstance(results[1], ValueError)
    assert doubler.batches == [[1, 2, 3], [1], [2], [3]]


async def test_outage_fails_all_calls_of_a_batch_at_once() -> None:
    doubler = Doubler({2: TransientError("away")})
    batcher = CallBatcher(doubler)
    results = await asyncio.gather(*map(batcher.run, (1, 2, 3)), return_exceptions=True)
    assert [type(result) for result in results] == [TransientError] * 3
    assert doubler.batches == [[1, 2, 3]]


async def test_cancelled_caller_does_not_disturb_others() -> None:
    doubler = Doubler()
    batcher = CallBatcher(doubler)
    doubler.gate.clear()
    calls = [asyncio.create_task(batcher.run(number)) for number in (1, 2)]
    while not doubler.batches:
        await asyncio.sleep(0)
    calls[0].cancel()
    doubler.gate.set()
    assert await calls[1] == 4
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    assert await batcher.run(3) == 6


async def test_cancelled_batch_fails_all_waiting_callers() -> None:
    """Something that the batch awaits may cancel it: its callers must not wait for ever."""

    async def cancel(numbers: list[int]) -> list[int]:
        raise asyncio.CancelledError

    batcher = CallBatcher(cancel, max_calls=1)
    async with asyncio.timeout(60):
        results = await asyncio.gather(*map(batcher.run, (1, 2)), return_exceptions=True)
    assert [type(result) for result in results] == [DatabaseUnavailable] * 2
