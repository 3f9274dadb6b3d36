"""Whatever a job does to its process, the next job has a good one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from engines.sandbox import Sandbox, SandboxLimits
from schemas.errors import EngineUnavailable, LimitExceeded, PermanentError, TransientError, UnreadableDocument
from tests.contract import sandboxed

MODULES = ("tests.contract.sandboxed",)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    pool = Sandbox(1, SandboxLimits(deadline_s=20, memory_bytes=300 * 2**20), MODULES)
    yield pool
    await pool.aclose()


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}/cmdline").exists() and b"sandbox_child" in Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_a_child_stays_for_many_jobs(sandbox: Sandbox) -> None:
    assert await sandbox.run(sandboxed.echo, b"abc") == b"abc"
    assert await sandbox.run(sandboxed.process) == await sandbox.run(sandboxed.process) != str(os.getpid()).encode()


@pytest.mark.parametrize(
    ("job", "arguments", "kind", "code"),
    [
        (sandboxed.hang, (), LimitExceeded, "DEADLINE_EXCEEDED"),
        (sandboxed.swallow, (2**31,), LimitExceeded, "MEMORY_EXCEEDED"),
        (sandboxed.end_abruptly, (), UnreadableDocument, "PARSER_CRASHED"),
        (sandboxed.stumble, (), UnreadableDocument, "PARSER_CRASHED"),
        (sandboxed.refuse, (), UnreadableDocument, "TORN"),
    ],
)
async def test_a_bad_job_fails_alone(sandbox: Sandbox, job: Callable[..., bytes], arguments: tuple[object, ...], kind: type[PermanentError], code: str) -> None:
    with pytest.raises(kind) as caught:
        await sandbox.run(job, *arguments, about="a.pdf", deadline_s=0.2 if job is sandboxed.hang else None)
    assert caught.value.code == code
    assert caught.value.remedy
    assert await sandbox.run(sandboxed.echo, b"next") == b"next"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_child_that_somebody_kills_says_nothing_against_its_document(sandbox: Sandbox, how: signal.Signals) -> None:
    with pytest.raises(TransientError) as caught:
        await sandbox.run(sandboxed.be_killed, int(how), about="a.pdf")
    assert (caught.value.code, caught.value.detail) == ("PARSER_CRASHED", "a.pdf broke the reader: the child process was killed")
    assert await sandbox.run(sandboxed.echo, b"next") == b"next"


async def test_memory_that_grows_slowly_is_watched() -> None:
    pool = Sandbox(1, SandboxLimits(deadline_s=60, memory_bytes=8 * 2**20), MODULES)
    with pytest.raises(LimitExceeded) as caught:
        await pool.run(sandboxed.hang)
    await pool.aclose()
    assert caught.value.code == "MEMORY_EXCEEDED"


async def test_what_a_job_prints_does_not_disturb_the_answer(sandbox: Sandbox) -> None:
    assert await sandbox.run(sandboxed.print_loudly) == b"done"


async def test_children_do_not_see_our_keys(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_CHAT__API_KEY", "secret")
    assert await sandbox.run(sandboxed.surroundings, "ANABRANCH_CHAT__API_KEY") == b""


async def test_a_cancelled_job_takes_its_child_along(sandbox: Sandbox) -> None:
    pid = int(await sandbox.run(sandboxed.process))
    job = asyncio.ensure_future(sandbox.run(sandboxed.hang))
    await asyncio.sleep(0)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert not is_running(pid)


async def test_a_child_is_replaced_after_its_jobs() -> None:
    pool = Sandbox(1, SandboxLimits(jobs=2), MODULES)
    pids = [await pool.run(sandboxed.process) for _ in range(4)]
    await pool.aclose()
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_jobs_run_side_by_side_and_closing_leaves_no_child_behind() -> None:
    pool = Sandbox(2, modules=MODULES)
    pids = [int(pid) for pid in await asyncio.gather(*(pool.run(sandboxed.process) for _ in range(6)))]
    assert len(set(pids)) == 2
    await pool.aclose()
    assert not any(is_running(pid) for pid in pids)


async def test_closing_during_a_job_is_no_fault_of_the_document() -> None:
    pool = Sandbox(1, modules=MODULES)
    await pool.warm()
    job = asyncio.ensure_future(pool.run(sandboxed.hang))
    await asyncio.sleep(0)
    await pool.aclose()
    with pytest.raises(EngineUnavailable):
        await job
