"""Wait until a published decision is visible in the tables."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

PROJECTION_TIMEOUT_S = 5.0
POLL_S = 0.05


async def wait_until_projected(
    is_projected: Callable[[], Awaitable[bool]], *, timeout_s: float = PROJECTION_TIMEOUT_S
) -> bool:
    """Poll until `is_projected` or the timeout; returns whether it is.

    Without a worker, it is projected later.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    while not (projected := await is_projected()) and clock() < deadline:
        await asyncio.sleep(POLL_S)
    return projected
