"""CPU seconds and memory of processes, from Linux's /proc (proc(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def measure_tree_cpu(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, including those that have ended."""
    return sum(_read_cpu_ticks(one) for one in walk_tree(pid)) / TICKS_PER_S


def measure_tree_mb(pid: int) -> float:
    """Return the resident MiB of a process and its descendants, shared pages counted in each."""
    pages = sum(int(_read(f"{one}/statm", "0 0").split()[1]) for one in walk_tree(pid))
    return pages * PAGE_BYTES / 2**20


def measure_pss_mb(pid: int) -> float:
    """Return the proportional MiB of a process: shared pages are divided by their users."""
    match = re.search(r"^Pss:\s+(\d+) kB", _read(f"{pid}/smaps_rollup", ""), re.MULTILINE)
    return int(match[1]) / 1024 if match else 0.0


def read_command(pid: int) -> str:
    return _read(f"{pid}/cmdline", "").replace("\0", " ").strip()


def walk_tree(pid: int) -> Iterator[int]:
    yield pid
    for child in _list_children(pid):
        yield from walk_tree(child)


def _list_children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return []
    # A child belongs to the thread that started it.
    return [
        int(child)
        for thread in threads
        for child in _read(f"{pid}/task/{thread.name}/children", "").split()
    ]


def _read_cpu_ticks(pid: int) -> int:
    """Read the CPU ticks of a process and its descendants that have ended."""
    # Fields 14 to 17: utime, stime, cutime, cstime. The name, field 2, may contain spaces.
    fields = _read(f"{pid}/stat", ") " + "0 " * 15).rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15])


def _read(name: str, default: str) -> str:
    """Read a file of /proc, or return the default if the process has ended."""
    try:
        return Path("/proc", name).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return default
