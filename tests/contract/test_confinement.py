"""A child that a hostile file has taken over reaches nothing but that file. Each test does what injected code would try first."""

from __future__ import annotations

import ast
import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from engines.sandbox import Sandbox, SandboxLimits
from schemas.errors import LimitExceeded, UnreadableDocument
from tests.contract import sandboxed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the measures are Linux's")


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    pool = Sandbox(1, SandboxLimits(deadline_s=30), ("tests.contract.sandboxed",))
    yield pool
    await pool.aclose()


async def fails(sandbox: Sandbox, job: Callable[..., bytes], *arguments: object, file: Path | None = None) -> str:
    with pytest.raises(UnreadableDocument) as caught:
        await sandbox.run(job, *arguments, file=file)
    return caught.value.detail


async def test_all_measures_hold_on_this_kernel(sandbox: Sandbox) -> None:
    """Where one cannot hold (an old kernel, a container's policy), its reason is reported, and `anabranch doctor` shows it."""
    assert await sandbox.measures() == dict.fromkeys(("account", "network", "privileges", "limits", "files", "calls"), "")


async def test_the_child_reads_the_file_handed_in_and_no_other(sandbox: Sandbox, tmp_path: Path) -> None:
    document, key = tmp_path / "a.txt", tmp_path / "master.key"
    document.write_bytes(b"text")
    key.write_bytes(b"secret")
    key.chmod(0o644)
    assert await sandbox.run(sandboxed.read_file, file=document) == b"text"
    assert "PermissionError" in await fails(sandbox, sandboxed.read_file, str(key))
    assert "PermissionError" in await fails(sandbox, sandboxed.read_file, str(document))


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/shadow", "/proc/{parent}/environ", "/proc/{parent}/mem", "/proc/1/environ"])
async def test_files_of_the_system_and_of_other_processes_stay_closed(sandbox: Sandbox, path: str) -> None:
    assert "PermissionError" in await fails(sandbox, sandboxed.read_file, path.format(parent=os.getpid()))


async def test_a_folder_beside_our_packages_is_not_readable(sandbox: Sandbox) -> None:
    """`./anabranch-data` is the default: in a checkout it lies next to `engines/`."""
    assert "PermissionError" in await fails(sandbox, sandboxed.read_file, str(Path(__file__).parents[2] / "pyproject.toml"))


async def test_nothing_can_be_written(sandbox: Sandbox, tmp_path: Path) -> None:
    document = tmp_path / "a.txt"
    document.write_bytes(b"text")
    for path in (str(tmp_path / "new"), "/tmp/anabranch-was-here", "/dev/shm/anabranch-was-here"):
        assert "PermissionError" in await fails(sandbox, sandboxed.write_file, path)
    assert "PermissionError" in await fails(sandbox, sandboxed.write_file, file=document)
    assert document.read_bytes() == b"text"


@pytest.mark.parametrize("attack", [sandboxed.connect, sandboxed.connect_by_call])
async def test_no_address_can_be_reached(sandbox: Sandbox, attack: Callable[..., bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert "PermissionError" in await fails(sandbox, attack, *listener.getsockname())


@pytest.mark.parametrize("attack", [sandboxed.run_program, sandboxed.fork, sandboxed.signal_parent, sandboxed.new_namespace])
async def test_no_other_process_can_be_made_or_signalled(sandbox: Sandbox, attack: Callable[..., bytes]) -> None:
    assert "PermissionError" in await fails(sandbox, attack)


async def test_the_child_keeps_neither_rights_nor_environment(sandbox: Sandbox) -> None:
    found = ast.literal_eval((await sandbox.run(sandboxed.identity)).decode())
    assert found["NoNewPrivs"] == ["1"] and found["Seccomp"] == ["2"]
    assert int(found["CapEff"][0], 16) in (0, 4)  # 4: only to read libraries in a folder of root, below Landlock
    assert "0" not in found["Uid"]
    assert set(found["environment"]) <= {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}


async def test_threads_still_work(sandbox: Sandbox) -> None:
    assert await sandbox.run(sandboxed.make_threads, 8) == b"done"


async def test_processor_time_is_bounded_without_the_parent(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent's watch is stopped: the kernel ends the child."""
    monkeypatch.setattr("engines.sandbox._WATCH_S", 60.0)
    with pytest.raises(LimitExceeded) as caught:
        await asyncio.wait_for(sandbox.run(sandboxed.burn, deadline_s=0.1), 30)
    assert caught.value.code == "DEADLINE_EXCEEDED"


async def test_resources_are_bounded(sandbox: Sandbox) -> None:
    await sandbox.measures()
    (child,) = sandbox._all
    lines = Path(f"/proc/{child.process.pid}/limits").read_text().splitlines()
    hard = {line[:26].strip(): line[26:].split()[1] for line in lines[1:]}
    bounded = ("Max file size", "Max open files", "Max processes", "Max core file size", "Max data size")
    assert {name: hard[name].isdigit() for name in bounded} == dict.fromkeys(bounded, True)
