"""Tasks that run beside a service until it is closed, and what they repeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog

from schemas.errors import TransientError

log = structlog.get_logger(__name__)
POLL_S = 0.05
T = TypeVar("T")


@asynccontextmanager
async def run_in_background(
    *coroutines: Coroutine[Any, Any, None],
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run coroutines while the context is open. One that fails, which is a bug, is logged."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    for task in tasks:
        task.add_done_callback(_log_failure)
    try:
        yield tasks
    finally:
        await cancel_tasks(tasks)


async def cancel_tasks(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel all before waiting for any, so that they end at the same time."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def repeat(
    step: Callable[[], Awaitable[object]], pause_s: float, postponed: str, **fields: str
) -> None:
    """Repeat a step until cancelled. It pauses before each one, unless the last returned true.

    A transient error ends only the step, and is logged under the name `postponed`.
    """
    has_more: object = False
    while True:
        if not has_more:
            await asyncio.sleep(pause_s)
        has_more = False
        try:
            has_more = await step()
        except TransientError as error:
            log.warning(postponed, code=error.code, detail=error.detail, **fields)


async def poll_until(
    fetch: Callable[[], Awaitable[T]], timeout_s: float, is_done: Callable[[T], bool] = bool
) -> T:
    """Fetch until the result is done or the time is over, at least once; return the last result."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    while not is_done(result := await fetch()) and clock() < deadline:
        await asyncio.sleep(POLL_S)
    return result


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("background_task_failed", task=repr(task.get_coro()), exc_info=error)
