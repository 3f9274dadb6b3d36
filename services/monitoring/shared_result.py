"""Share the result of a costly query between the requests of the next moments."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
PAUSE_FACTOR = 4
"""A result is shared for at least this many durations of its query, which bounds its load."""


@dataclass(slots=True)
class SharedResult(Generic[T]):
    """The result of `fetch`, at most `max_age_s` old, or as old as its cost requires.

    Concurrent callers share one query. Errors are not kept.
    """

    fetch: Callable[[], Awaitable[T]]
    max_age_s: float
    _task: asyncio.Task[T] | None = field(default=None, init=False)
    _expires_at: float = field(default=0.0, init=False)

    async def get(self) -> T:
        task = self._task
        if task is None or (task.done() and asyncio.get_running_loop().time() >= self._expires_at):
            task = self._task = asyncio.create_task(self._run())
        # Shielded: one caller that disconnects must not cancel the query of the others.
        return await asyncio.shield(task)

    async def _run(self) -> T:
        clock = asyncio.get_running_loop().time
        started_at = clock()
        self._expires_at = started_at
        result = await self.fetch()
        now = clock()
        self._expires_at = now + max(self.max_age_s, PAUSE_FACTOR * (now - started_at))
        return result
