"""Open files of a watched folder, where others create, replace and write files meanwhile."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import signal
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

OUTSIDE_LINK = "a link to a file outside the allowed folders"


@dataclass(frozen=True, slots=True)
class FileBytes:
    sha256: str
    payload: bytes | None
    """None if the file is longer than the limit of the read."""


def open_file(path: Path, allowed_roots: Sequence[Path] | None) -> BufferedReader:
    """Open a regular file below one of the roots; None allows any file. Raises OSError.

    Checks the file that it opens, since a file may become a link, or a pipe, after a scan.
    """
    # O_NONBLOCK: opening a pipe would otherwise wait for a writer.
    descriptor = (
        os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if allowed_roots is None
        else _open_below(path.resolve(), allowed_roots)
    )
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def _open_below(resolved_path: Path, allowed_roots: Sequence[Path]) -> int:
    root = next((root for root in allowed_roots if resolved_path.is_relative_to(root)), None)
    if root is None:
        raise OSError(errno.EPERM, OUTSIDE_LINK)
    # Name by name and without links: a folder that becomes a link after `resolve` is refused.
    *folders, filename = resolved_path.relative_to(root).parts
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in folders:
            parent, folder = (
                folder,
                os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder),
            )
            os.close(parent)
        return os.open(filename, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)


def read_file(file: BufferedReader, payload_limit: int) -> FileBytes:
    """Hash the file, and return its bytes if there are at most `payload_limit`."""
    payload = file.read(payload_limit + 1)
    if len(payload) <= payload_limit:
        return FileBytes(hashlib.sha256(payload).hexdigest(), payload)
    file.seek(0)
    return FileBytes(hashlib.file_digest(file, "sha256").hexdigest(), None)


def may_have_writer(file: BufferedReader) -> bool:
    """Return False if no process has the file open for writing, and True if that is not known.

    Linux grants a read lease only on a file without a writer (fcntl(2)). It gives no answer for
    files of other users and on network file systems, other systems for none.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return True
    try:
        # A writer that opens the file before the lease is returned has a signal sent to us. SIGURG
        # is ignored by default; the usual SIGIO would end the process.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False
