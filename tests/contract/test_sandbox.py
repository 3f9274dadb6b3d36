"""A sandbox recovers from whatever a job does to its process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from engines.sandbox import Sandbox, SandboxLimits
from schemas.errors import (
    EngineUnavailable,
    LimitExceeded,
    PermanentError,
    TransientError,
    UnreadableDocument,
)
from tests.contract import sandbox_jobs

MODULES = ("tests.contract.sandbox_jobs",)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    pool = Sandbox(1, SandboxLimits(deadline_s=20, memory_bytes=300 * 2**20), MODULES)
    yield pool
    await pool.aclose()


def is_running(pid: int) -> bool:
    return (
        Path(f"/proc/{pid}/cmdline").exists()
        and b"sandbox_child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


async def test_child_process_is_reused(sandbox: Sandbox) -> None:
    assert await sandbox.run(sandbox_jobs.echo, b"abc") == b"abc"
    assert (
        await sandbox.run(sandbox_jobs.report_pid)
        == await sandbox.run(sandbox_jobs.report_pid)
        != str(os.getpid()).encode()
    )


@pytest.mark.parametrize(
    ("job", "arguments", "kind", "code"),
    [
        (sandbox_jobs.hang, (), LimitExceeded, "DEADLINE_EXCEEDED"),
        (sandbox_jobs.allocate, (2**31,), LimitExceeded, "MEMORY_EXCEEDED"),
        (sandbox_jobs.segfault, (), UnreadableDocument, "PARSER_CRASHED"),
        (sandbox_jobs.raise_unexpected, (), UnreadableDocument, "PARSER_CRASHED"),
        (sandbox_jobs.raise_unreadable, (), UnreadableDocument, "TORN"),
    ],
)
async def test_failing_job_does_not_affect_next_job(
    sandbox: Sandbox,
    job: Callable[..., bytes],
    arguments: tuple[object, ...],
    kind: type[PermanentError],
    code: str,
) -> None:
    with pytest.raises(kind) as caught:
        await sandbox.run(
            job, *arguments, subject="a.pdf", deadline_s=0.2 if job is sandbox_jobs.hang else None
        )
    assert caught.value.code == code
    assert caught.value.remedy
    assert await sandbox.run(sandbox_jobs.echo, b"next") == b"next"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_externally_killed_child_is_a_transient_error(
    sandbox: Sandbox, how: signal.Signals
) -> None:
    with pytest.raises(TransientError) as caught:
        await sandbox.run(sandbox_jobs.kill_self, int(how), subject="a.pdf")
    assert (caught.value.code, caught.value.detail) == (
        "PARSER_CRASHED",
        "The parser crashed on a.pdf: the child process was killed",
    )
    assert await sandbox.run(sandbox_jobs.echo, b"next") == b"next"


async def test_memory_limit_is_enforced_while_running() -> None:
    pool = Sandbox(1, SandboxLimits(deadline_s=60, memory_bytes=8 * 2**20), MODULES)
    with pytest.raises(LimitExceeded) as caught:
        await pool.run(sandbox_jobs.hang)
    await pool.aclose()
    assert caught.value.code == "MEMORY_EXCEEDED"


async def test_job_output_does_not_corrupt_result(sandbox: Sandbox) -> None:
    assert await sandbox.run(sandbox_jobs.print_much) == b"done"


async def test_child_environment_has_no_secrets(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_CHAT__API_KEY", "secret")
    assert await sandbox.run(sandbox_jobs.read_environment, "ANABRANCH_CHAT__API_KEY") == b""


async def test_cancelled_job_ends_its_child(sandbox: Sandbox) -> None:
    pid = int(await sandbox.run(sandbox_jobs.report_pid))
    job = asyncio.ensure_future(sandbox.run(sandbox_jobs.hang))
    await asyncio.sleep(0)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert not is_running(pid)


async def test_child_is_replaced_after_job_limit() -> None:
    pool = Sandbox(1, SandboxLimits(max_jobs=2), MODULES)
    pids = [await pool.run(sandbox_jobs.report_pid) for _ in range(4)]
    await pool.aclose()
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_jobs_run_concurrently_and_close_ends_children() -> None:
    pool = Sandbox(2, modules=MODULES)
    pids = [
        int(pid)
        for pid in await asyncio.gather(*(pool.run(sandbox_jobs.report_pid) for _ in range(6)))
    ]
    assert len(set(pids)) == 2
    await pool.aclose()
    assert not any(is_running(pid) for pid in pids)


async def test_close_during_job_raises_engine_unavailable() -> None:
    pool = Sandbox(1, modules=MODULES)
    await pool.warm()
    job = asyncio.ensure_future(pool.run(sandbox_jobs.hang))
    await asyncio.sleep(0)
    await pool.aclose()
    with pytest.raises(EngineUnavailable):
        await job
