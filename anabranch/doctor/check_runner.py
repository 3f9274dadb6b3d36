"""Run checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from schemas.errors import AnabranchError
from schemas.findings import Finding

CHECK_TIMEOUT_S = 15.0
Check = Callable[[], Awaitable[Sequence[Finding]]]


async def run_check(name: str, check: Check) -> Sequence[Finding]:
    """Run a check; report an exception or a timeout as a failure."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return await check()
    except AnabranchError as error:
        return [Finding(name, "fail", error.detail, error.remedy)]
    except TimeoutError:
        return [
            Finding(
                name,
                "fail",
                f"no answer within {CHECK_TIMEOUT_S:.0f} s",
                "Check the network and the address.",
            )
        ]
    except OSError as error:
        return [Finding(name, "fail", str(error), "Check permissions and the disk.")]
