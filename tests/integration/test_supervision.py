from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping

import pytest

from anabranch.process.fork_server import STDERR_FD, ForkServer
from anabranch.process.supervisor import MAX_FIRST_STARTS, ChildProcess
from schemas.errors import FatalError
from tests.support.eventually import eventually


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


def make_child(
    fork_server: ForkServer, *arguments: str, settled: bool = False
) -> tuple[ChildProcess, list[int]]:
    starts: list[int] = []
    variables: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
    variables.set_result({})
    made = ChildProcess(
        fork_server,
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


async def test_misconfigured_child_stops_supervision_immediately(fork_server: ForkServer) -> None:
    tried, starts = make_child(fork_server, "worker", "--stages", "nonsense")
    with pytest.raises(FatalError) as caught:
        await tried.supervise()
    assert (caught.value.code, len(starts)) == ("MISCONFIGURED", 1)


async def test_child_that_never_becomes_ready_stops_supervision(fork_server: ForkServer) -> None:
    tried, starts = make_child(fork_server, "version")
    with pytest.raises(FatalError) as caught:
        await tried.supervise()
    assert (caught.value.code, len(starts)) == ("KEEPS_ENDING", MAX_FIRST_STARTS)


async def test_child_that_was_ready_is_always_restarted(fork_server: ForkServer) -> None:
    tried, starts = make_child(fork_server, "worker", "--stages", "nonsense", settled=True)
    keeping = asyncio.create_task(tried.supervise())
    await eventually(lambda: len(starts) >= 3)
    assert not keeping.done()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await tried.stop()


async def test_killed_fork_server_is_started_again(fork_server: ForkServer) -> None:
    first = await fork_server.fork("first", ["version"], STDERR_FD)
    assert await first.wait() == 0
    os.kill(fork_server.pid, signal.SIGKILL)
    # A busy machine may let it answer once more.
    os.waitid(os.P_PID, fork_server.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ConnectionError):
        await fork_server.fork("lost", ["version"], STDERR_FD)
    second = await fork_server.fork("second", ["version"], STDERR_FD)
    assert await second.wait() == 0


async def test_killed_child_has_no_exit_code(fork_server: ForkServer) -> None:
    waiting = await fork_server.fork("waiting", ["worker", "--attached"], STDERR_FD)
    waiting.send_signal(signal.SIGKILL)
    assert await waiting.wait() is None
    waiting.send_signal(signal.SIGKILL)


async def test_child_ends_with_its_stdin(fork_server: ForkServer) -> None:
    waiting = await fork_server.fork("waiting", ["worker", "--attached"], STDERR_FD)
    os.close(waiting.stdin_fd)
    assert await waiting.exit_code.read() == b""
