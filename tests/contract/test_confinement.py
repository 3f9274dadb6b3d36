"""Confinement of a sandbox child: each test tries what injected code would try first."""

from __future__ import annotations

import ast
import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from engines.sandbox import Sandbox, SandboxLimits
from schemas.errors import LimitExceeded, UnreadableDocument
from tests.contract import sandbox_jobs

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux", reason="the sandbox uses features of the Linux kernel"
    ),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    pool = Sandbox(1, SandboxLimits(deadline_s=30), ("tests.contract.sandbox_jobs",))
    yield pool
    await pool.aclose()


async def run_and_expect_failure(
    sandbox: Sandbox, job: Callable[..., bytes], *arguments: object, file: Path | None = None
) -> str:
    with pytest.raises(UnreadableDocument) as caught:
        await sandbox.run(job, *arguments, file=file)
    return caught.value.detail


async def test_all_sandbox_measures_apply_on_this_kernel(sandbox: Sandbox) -> None:
    """Report a reason for each measure that an old kernel or a container's policy prevents."""
    assert await sandbox.fetch_measures() == dict.fromkeys(
        ("account", "network", "privileges", "limits", "files", "calls"), ""
    )


async def test_child_reads_only_its_input_file(sandbox: Sandbox, tmp_path: Path) -> None:
    document, key = tmp_path / "a.txt", tmp_path / "master.key"
    document.write_bytes(b"text")
    key.write_bytes(b"secret")
    key.chmod(0o644)
    assert await sandbox.run(sandbox_jobs.read_file, file=document) == b"text"
    assert "PermissionError" in await run_and_expect_failure(
        sandbox, sandbox_jobs.read_file, str(key)
    )
    assert "PermissionError" in await run_and_expect_failure(
        sandbox, sandbox_jobs.read_file, str(document)
    )


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/etc/shadow",
        "/proc/{parent}/environ",
        "/proc/{parent}/mem",
        "/proc/1/environ",
    ],
)
async def test_system_and_process_files_are_not_readable(sandbox: Sandbox, path: str) -> None:
    assert "PermissionError" in await run_and_expect_failure(
        sandbox, sandbox_jobs.read_file, path.format(parent=os.getpid())
    )


async def test_project_root_is_not_readable(sandbox: Sandbox) -> None:
    """`./anabranch-data` is the default: in a checkout it lies next to `engines/`."""
    assert "PermissionError" in await run_and_expect_failure(
        sandbox, sandbox_jobs.read_file, str(Path(__file__).parents[2] / "pyproject.toml")
    )


async def test_child_cannot_write_files(sandbox: Sandbox, tmp_path: Path) -> None:
    document = tmp_path / "a.txt"
    document.write_bytes(b"text")
    for path in (str(tmp_path / "new"), "/tmp/anabranch-was-here", "/dev/shm/anabranch-was-here"):
        assert "PermissionError" in await run_and_expect_failure(
            sandbox, sandbox_jobs.write_file, path
        )
    assert "PermissionError" in await run_and_expect_failure(
        sandbox, sandbox_jobs.write_file, file=document
    )
    assert document.read_bytes() == b"text"


@pytest.mark.parametrize("attack", [sandbox_jobs.connect, sandbox_jobs.connect_by_syscall])
async def test_child_cannot_open_connections(
    sandbox: Sandbox, attack: Callable[..., bytes]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert "PermissionError" in await run_and_expect_failure(
            sandbox, attack, *listener.getsockname()
        )


@pytest.mark.parametrize(
    "attack",
    [
        sandbox_jobs.run_program,
        sandbox_jobs.fork,
        sandbox_jobs.signal_parent,
        sandbox_jobs.create_namespace,
    ],
)
async def test_child_cannot_start_or_signal_processes(
    sandbox: Sandbox, attack: Callable[..., bytes]
) -> None:
    assert "PermissionError" in await run_and_expect_failure(sandbox, attack)


async def test_child_has_no_privileges_and_no_environment(sandbox: Sandbox) -> None:
    found = ast.literal_eval((await sandbox.run(sandbox_jobs.report_identity)).decode())
    assert found["NoNewPrivs"] == ["1"] and found["Seccomp"] == ["2"]
    assert int(found["CapEff"][0], 16) in (
        0,
        4,
    )  # 4: only to read libraries in a folder of root, below Landlock
    assert "0" not in found["Uid"]
    assert set(found["environment"]) <= {
        "HOME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "PYTHONPATH",
        "PYTHONDONTWRITEBYTECODE",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "OBJC_DISABLE_INITIALIZE_FORK_SAFETY",
    }


async def test_child_can_start_threads(sandbox: Sandbox) -> None:
    assert await sandbox.run(sandbox_jobs.start_threads, 8) == b"done"


async def test_kernel_limits_cpu_time_without_parent(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disable the parent's watchdog, so that the kernel ends the child."""
    monkeypatch.setattr("engines.sandbox._POLL_INTERVAL_S", 60.0)
    with pytest.raises(LimitExceeded) as caught:
        await asyncio.wait_for(sandbox.run(sandbox_jobs.burn_cpu, deadline_s=0.1), 120)
    assert caught.value.code == "DEADLINE_EXCEEDED"


async def test_resource_limits_are_set(sandbox: Sandbox) -> None:
    lines = (await sandbox.run(sandbox_jobs.read_file, "/proc/self/limits")).decode().splitlines()
    hard = {line[:26].strip(): line[26:].split()[1] for line in lines[1:]}
    bounded = (
        "Max file size",
        "Max open files",
        "Max processes",
        "Max core file size",
        "Max data size",
    )
    assert {name: hard[name].isdigit() for name in bounded} == dict.fromkeys(bounded, True)
