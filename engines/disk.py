"""Disk space reserved for the database, the log and the index."""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import NoSpace

DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
MIB = 1024 * 1024


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
        return min(
            shutil.disk_usage(
                next(ancestor for ancestor in (folder, *folder.parents) if ancestor.exists())
            ).free
            for folder in self.folders
        )

    def format_shortage(self, free_bytes: int) -> str:
        return f"Only {free_bytes // MIB} MiB of disk space are free, below the reserve of {self.reserve_bytes // MIB} MiB; uploads are refused."


def is_disk_full(error: BaseException) -> bool:
    """Return whether a full disk or an exhausted quota caused the error."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in DISK_FULL_ERRNOS
    # obstore errors carry the errno in their text only.
    return any(f"os error {number})" in str(error) for number in DISK_FULL_ERRNOS)
