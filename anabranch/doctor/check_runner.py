"""Run checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from schemas.errors import AnabranchError
from schemas.findings import Finding, FindingState

CHECK_TIMEOUT_S = 15.0
Check = Callable[[], Awaitable[Sequence[Finding]]]


def judge(
    check: str, is_fine: bool, detail: str, remedy: str, otherwise: FindingState = "fail"
) -> Finding:
    """Return the finding of a check that passes, or has this state and remedy otherwise."""
    return Finding(check, "pass" if is_fine else otherwise, detail, "" if is_fine else remedy)


async def run_check(name: str, check: Check) -> Sequence[Finding]:
    """Run a check; report an exception or a timeout as a failure."""
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return await check()
    except AnabranchError as error:
        return [Finding(name, "fail", error.detail, error.remedy)]
    except TimeoutError:
        detail = f"no answer within {CHECK_TIMEOUT_S:.0f} s"
        return [Finding(name, "fail", detail, "Check the network and the address.")]
    except OSError as error:
        return [Finding(name, "fail", str(error), "Check permissions and the disk.")]
