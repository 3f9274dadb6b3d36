"""Concurrent jobs whose results are handled in batches that form by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")


async def run_in_batches(
    jobs: Iterable[Coroutine[Any, Any, T]],
    limit: int,
    handle_batch: Callable[[list[T]], Awaitable[None]],
) -> None:
    """Run the jobs, and handle together whatever has finished while the last batch was handled.

    At most `limit` jobs run or wait for their batch. A single job is handled at once. An error of a
    job or of `handle_batch` cancels the jobs that run.
    """
    remaining_jobs = iter(jobs)
    running: set[asyncio.Task[T]] = set()
    try:
        while True:
            new_jobs = islice(remaining_jobs, limit - len(running))
            running |= {asyncio.create_task(job) for job in new_jobs}
            if not running:
                return
            finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            await handle_batch([task.result() for task in finished])
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
