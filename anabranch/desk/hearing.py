"""Waiting until a decision that is in the log has come to the tables, so that whoever looks or decides next finds it there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

HEARD_S = 5.0
POLL_S = 0.05


async def heard(is_there: Callable[[], Awaitable[bool]], *, within_s: float = HEARD_S) -> bool:
    """Whether it came in time; without a worker it comes later."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + within_s
    while not (there := await is_there()) and clock() < deadline:
        await asyncio.sleep(POLL_S)
    return there
