"""Files of a local blob store, handled by system calls in the event loop.

On the page cache these take 20 to 100 µs, where obstore's switches to its threads and back take 130
to 600.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MAX_FOLDER_RACES = 20


def get_file_size(path: Path) -> int:
    """Return the size in bytes. Raises FileNotFoundError, also for a folder."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(path)
    return status.st_size


def write_file(path: Path, data: bytes) -> None:
    """Create the file whole, or leave the existing one."""
    if not path.exists():
        _retry_in_new_folder(path.parent, lambda: _write_temporary(path, data).rename(path))


def move_file(source: Path, target: Path, root: Path) -> None:
    """Move the file, replacing the target. Raises FileNotFoundError if the source is missing."""

    def move() -> None:
        get_file_size(source)
        source.rename(target)

    get_file_size(source)
    _retry_in_new_folder(target.parent, move)
    _remove_empty_folders(source.parent, root)


def delete_file(path: Path, root: Path) -> None:
    """Delete the file and the folders that this leaves empty. A missing file is ignored."""
    with suppress(FileNotFoundError):
        get_file_size(path)
        path.unlink()
        _remove_empty_folders(path.parent, root)


def _retry_in_new_folder(folder: Path, operation: Callable[[], object]) -> None:
    for _ in range(MAX_FOLDER_RACES):
        # A deletion may remove the folder, or one above it, as soon as it is made.
        with suppress(FileNotFoundError, FileExistsError):
            folder.mkdir(parents=True, exist_ok=True)
            operation()
            return
    operation()


def _write_temporary(path: Path, data: bytes) -> Path:
    # `#` and a number mark a temporary file for obstore, which does not list it.
    number = 1
    while True:
        temporary = path.with_name(f"{path.name}#{number}")
        try:
            with temporary.open("xb") as file:
                file.write(data)
            return temporary
        except FileExistsError:
            number += 1
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def _remove_empty_folders(folder: Path, root: Path) -> None:
    # Fails at the first folder that is not empty.
    with suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent
