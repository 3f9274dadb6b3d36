"""Temporary folder of a process, below the data folder."""

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
    """Create a folder (mode 0700) that is removed at the end.

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
