"""Batches that form from the results of concurrent jobs."""

from __future__ import annotations

import asyncio

import pytest

from streams.sources.concurrent_batches import run_in_batches


async def test_results_that_finish_during_a_batch_form_the_next() -> None:
    batches: list[list[int]] = []
    release = [asyncio.Event() for _ in range(5)]

    async def finish(number: int) -> int:
        await release[number].wait()
        return number

    async def handle(batch: list[int]) -> None:
        batches.append(sorted(batch))
        if batch == [0]:
            for event in release[1:4]:
                event.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if 3 in batch:
            release[4].set()

    release[0].set()
    await run_in_batches((finish(number) for number in range(5)), 8, handle)
    assert batches == [[0], [1, 2, 3], [4]]


async def test_jobs_start_no_sooner_than_the_limit_allows() -> None:
    running, most, handled = 0, 0, []

    async def finish(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    async def handle(batch: list[int]) -> None:
        handled.extend(batch)

    await run_in_batches((finish(number) for number in range(50)), 4, handle)
    assert sorted(handled) == list(range(50)) and most == 4


@pytest.mark.parametrize("fails", ["job", "batch"])
async def test_error_cancels_running_jobs(fails: str) -> None:
    cancelled = asyncio.Event()

    async def wait_forever() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return 0

    async def finish() -> int:
        await asyncio.sleep(0)
        if fails == "job":
            raise ValueError("unreadable")
        return 1

    async def handle(batch: list[int]) -> None:
        raise ValueError("unreadable")

    with pytest.raises(ValueError, match="unreadable"):
        await run_in_batches(iter([wait_forever(), finish()]), 4, handle)
    assert cancelled.is_set()
