"""Temporary files of a process: below the data folder, for its account only, and swept when their process is gone."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER, LOCK = "tmp", ".lock"


@contextmanager
def open_temporary_folder(data_dir: Path) -> Iterator[Path]:
    """Make a folder (mode 0700) that is removed at the end, and remove those of processes that were killed: nobody holds their locks."""
    root = data_dir / FOLDER
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (root / LOCK).open("a") as root_lock:
        # Between the making of a folder and its lock it would look like one that was left behind.
        fcntl.flock(root_lock, fcntl.LOCK_EX)
        for folder in root.iterdir():
            if folder.is_dir() and not _is_locked(folder):
                shutil.rmtree(folder, ignore_errors=True)
        process_folder = Path(tempfile.mkdtemp(dir=root))
        folder_lock = (process_folder / LOCK).open("a")
        fcntl.flock(folder_lock, fcntl.LOCK_EX)
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
