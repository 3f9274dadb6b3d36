from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from anabranch.process.supervisor import MAX_FIRST_STARTS, ChildProcess
from schemas.errors import FatalError
from tests.support.eventually import eventually


def make_child(*arguments: str, settled: bool = False) -> tuple[ChildProcess, list[int]]:
    starts: list[int] = []
    variables: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
    variables.set_result({})
    made = ChildProcess(
        "tried",
        arguments,
        variables,
        None,
        on_start=lambda: starts.append(1),
        first_pause_s=0.01,
        max_pause_s=0.02,
        is_settled=settled,
    )
    return made, starts


async def test_misconfigured_child_stops_supervision_immediately() -> None:
    tried, starts = make_child("worker", "--stages", "nonsense")
    with pytest.raises(FatalError) as caught:
        await tried.supervise()
    assert (caught.value.code, len(starts)) == ("MISCONFIGURED", 1)


async def test_child_that_never_becomes_ready_stops_supervision() -> None:
    tried, starts = make_child("version")
    with pytest.raises(FatalError) as caught:
        await tried.supervise()
    assert (caught.value.code, len(starts)) == ("KEEPS_ENDING", MAX_FIRST_STARTS)


async def test_child_that_was_ready_is_always_restarted() -> None:
    tried, starts = make_child("worker", "--stages", "nonsense", settled=True)
    keeping = asyncio.create_task(tried.supervise())
    await eventually(lambda: len(starts) >= 3)
    assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await tried.stop()
