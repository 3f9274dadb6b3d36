"""Batches from concurrent calls and from long lists, and calls in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from schemas.errors import DatabaseUnavailable, TransientError

CallT = TypeVar("CallT")
ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")
MAX_CALLS = 256


class CallBatcher(Generic[CallT, ResultT]):
    """Run concurrent calls together: those that arrive during a batch form the next one.

    A single call runs at once. `run_batch` returns the results in the order of the calls; if it
    raises anything but TransientError, each call runs alone, so that only the culprit fails.
    `estimate_share` tells how much of a batch a call takes, from 0 to 1.
    """

    def __init__(
        self,
        run_batch: Callable[[list[CallT]], Awaitable[Sequence[ResultT]]],
        estimate_share: Callable[[CallT], float] = lambda _: 1 / MAX_CALLS,
    ) -> None:
        self._run_batch, self._estimate_share = run_batch, estimate_share
        self._waiting: list[tuple[CallT, asyncio.Future[ResultT]]] = []
        self._runner: asyncio.Task[None] | None = None

    async def run(self, call: CallT) -> ResultT:
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, future))
        if self._runner is None:
            # A task begins with the next round of the event loop, when all callers that are ready
            # now have called.
            self._runner = asyncio.create_task(self._run_waiting())
        return await future

    async def drain(self) -> None:
        """Wait for the calls that are running or waiting."""
        if self._runner is not None:
            await self._runner

    async def _run_waiting(self) -> None:
        batch: list[tuple[CallT, asyncio.Future[ResultT]]] = []
        try:
            while self._waiting:
                batch = next(
                    split_by_cost(self._waiting, lambda pair: self._estimate_share(pair[0]), 1.0)
                )
                self._waiting = self._waiting[len(batch) :]
                await self._run_together(batch)
        except BaseException:
            # Their own tasks were not cancelled: they may call again.
            _fail([*batch, *self._waiting], DatabaseUnavailable("A batched call was cancelled."))
            self._waiting.clear()
            raise
        finally:
            self._runner = None

    async def _run_together(self, batch: list[tuple[CallT, asyncio.Future[ResultT]]]) -> None:
        try:
            results = await self._run_batch([call for call, _ in batch])
        except Exception as error:
            if len(batch) == 1 or isinstance(error, TransientError):
                _fail(batch, error)
                return
            for pair in batch:
                await self._run_together([pair])
            return
        for (_, future), result in zip(batch, results, strict=True):
            # A caller may have been cancelled meanwhile.
            if not future.done():
                future.set_result(result)


def _fail(calls: list[tuple[CallT, asyncio.Future[ResultT]]], error: Exception) -> None:
    for _, future in calls:
        if not future.done():
            future.set_exception(error)


def split_by_cost(
    items: Sequence[ItemT], estimate_cost: Callable[[ItemT], float], max_cost: float
) -> Iterator[list[ItemT]]:
    """Split items, in their order, into batches of at most `max_cost`.

    An item that costs more is a batch of its own.
    """
    batch: list[ItemT] = []
    cost = 0.0
    for item in items:
        item_cost = estimate_cost(item)
        if batch and cost + item_cost > max_cost:
            yield batch
            batch, cost = [], 0.0
        batch.append(item)
        cost += item_cost
    if batch:
        yield batch


def split_evenly(items: Sequence[ItemT], max_size: int) -> Iterator[list[ItemT]]:
    """Split items, in their order, into batches of at most `max_size`."""
    return split_by_cost(items, lambda _: 1.0, max_size)


async def collect_evenly(items: AsyncIterator[ItemT], max_size: int) -> AsyncIterator[list[ItemT]]:
    """Collect items, in their order, into batches of at most `max_size`."""
    batch: list[ItemT] = []
    async for item in items:
        batch.append(item)
        if len(batch) == max_size:
            yield batch
            batch = []
    if batch:
        yield batch


CALLER_ABANDONED = "the caller went away while the server was answering"
"""Message of a CancelledError that is no failure of the server; any other one counts as a timeout
of the server."""


async def map_parallel(
    function: Callable[[ItemT], Awaitable[ResultT]], items: Iterable[ItemT], limit: int
) -> list[ResultT]:
    """Call the function for every item, `limit` at once, and return the results in order.

    The first failure cancels the other calls, which then do not count as failures of a server. It
    is raised after they have stopped, so that the caller can delete the files that they use.
    """
    slots = asyncio.Semaphore(limit)

    async def call(item: ItemT) -> ResultT:
        async with slots:
            return await function(item)

    tasks = [asyncio.ensure_future(call(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel(CALLER_ABANDONED)
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
