from __future__ import annotations

import asyncio
import os

import pytest

from anabranch.process.children import FIRST_STARTS, Child
from schemas.errors import FatalError


def child(*arguments: str, settled: bool = False) -> tuple[Child, list[int]]:
    starts: list[int] = []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}
    made = Child("tried", arguments, environment, None, started=lambda: starts.append(1), first_pause_s=0.01, most_pause_s=0.02, settled=settled)
    return made, starts


async def test_a_child_that_cannot_start_as_configured_ends_the_supervision_at_once() -> None:
    tried, starts = child("worker", "--stages", "nonsense")
    with pytest.raises(FatalError) as caught:
        await tried.keep()
    assert (caught.value.code, len(starts)) == ("MISCONFIGURED", 1)


async def test_a_child_that_keeps_ending_before_it_is_ready_ends_the_supervision() -> None:
    tried, starts = child("version")
    with pytest.raises(FatalError) as caught:
        await tried.keep()
    assert (caught.value.code, len(starts)) == ("KEEPS_ENDING", FIRST_STARTS)


async def test_a_child_that_was_ready_once_is_always_started_again() -> None:
    tried, starts = child("worker", "--stages", "nonsense", settled=True)
    keeping = asyncio.create_task(tried.keep())
    async with asyncio.timeout(60):
        while len(starts) < 3:
            await asyncio.sleep(0.05)
    assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await tried.stop()
