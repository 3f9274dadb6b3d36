"""Waiting until a decision that is in the log has come to the tables, so that whoever looks or decides next finds it there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

PROJECTION_TIMEOUT_S = 5.0
POLL_S = 0.05


async def wait_until_projected(is_projected: Callable[[], Awaitable[bool]], *, timeout_s: float = PROJECTION_TIMEOUT_S) -> bool:
    """Whether it came in time; without a worker it comes later."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    while not (projected := await is_projected()) and clock() < deadline:
        await asyncio.sleep(POLL_S)
    return projected
