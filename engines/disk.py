"""Disk: space reserved for the database and the log, temporary folders, atomic writing."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from schemas.errors import NoSpace

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of a disk."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class DiskReserve:
    """Keeps `reserve_bytes` free on the disk of each folder.

    A missing folder counts as a folder on its parent's disk.
    """

    folders: tuple[Path, ...]
    reserve_bytes: int

    def check(self) -> None:
        """Raise NoSpace if less than the reserve is free."""
        if (free_bytes := self.get_free_bytes()) < self.reserve_bytes:
            raise NoSpace(self.format_shortage(free_bytes))

    def get_free_bytes(self) -> int:
        """Return the free bytes on the fullest disk."""
        return self.get_usage().free

    def get_usage(self) -> DiskUsage:
        """Return the usage of the fullest disk."""
        usages = [
            shutil.disk_usage(
                next(ancestor for ancestor in (folder, *folder.parents) if ancestor.exists())
            )
            for folder in self.folders
        ]
        fullest = min(usages, key=lambda usage: usage.free)
        return DiskUsage(total=fullest.total, free=fullest.free)

    def format_shortage(self, free_bytes: int) -> str:
        return (
            f"Only {free_bytes // MIB} MiB of disk space are free, below the reserve of "
            f"{self.reserve_bytes // MIB} MiB; uploads are refused."
        )


def is_disk_full(error: BaseException) -> bool:
    """Return whether a full disk or an exhausted quota caused the error."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in DISK_FULL_ERRNOS
    # obstore errors carry the errno in their text only.
    return any(f"os error {number})" in str(error) for number in DISK_FULL_ERRNOS)


FOLDER, LOCK = "tmp", ".lock"


@contextmanager
def open_temporary_folder(data_dir: Path) -> Iterator[Path]:
    """Create a folder of this process (mode 0700) below the data folder; remove it at the end.

    Also removes folders of killed processes: their locks are free.
    """
    root = data_dir / FOLDER
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (root / LOCK).open("a") as root_lock:
        # Hold the root lock: a new folder without its own lock would look like that of a killed
        # process.
        fcntl.flock(root_lock, fcntl.LOCK_EX)
        for folder in root.iterdir():
            if folder.is_dir() and not _is_locked(folder):
                shutil.rmtree(folder, ignore_errors=True)
        process_folder = Path(tempfile.mkdtemp(dir=root))
        folder_lock = (process_folder / LOCK).open("a")
        fcntl.flock(folder_lock, fcntl.LOCK_EX)
    # The kernel releases the lock when the process ends, even if it is killed.
    with folder_lock:
        try:
            yield process_folder
        finally:
            shutil.rmtree(process_folder, ignore_errors=True)


def _is_locked(folder: Path) -> bool:
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def write_atomically(target: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file next to `target`, sync it and rename it.

    If two processes race, the last one wins.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary_path = target.with_name(f".{uuid4().hex}.{target.name}")
    try:
        write(temporary_path)
        with temporary_path.open("rb") as file:
            # Before the rename: after a power failure the name must not lead to an empty file.
            os.fsync(file.fileno())
        temporary_path.replace(target)
    finally:
        temporary_path.unlink(missing_ok=True)


def write_private(target: Path, text: str) -> None:
    """Write a text atomically, readable by its owner only."""

    def write(path: Path) -> None:
        # Mode before content, so that a secret is never readable by others.
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(text, encoding="utf-8")

    write_atomically(target, write)
