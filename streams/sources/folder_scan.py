"""Scan a watched folder, inspect and open its files, and wait for notifications about them.

Hidden files and folders are ignored, files that are no documents are counted. Unreadable files and
folders are reported. Others create, replace and write files meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import signal
import stat
import threading
from collections.abc import AsyncIterator, Collection, Container, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from io import BufferedReader
from pathlib import Path, PurePosixPath

import structlog
from watchfiles import watch

from schemas.errors import ConfigurationError
from schemas.file_names import is_skipped
from streams.cloudevents import replace_surrogates

log = structlog.get_logger(__name__)
STEP_MS = 5
"""A change is reported once none has followed it for this long, or after MAX_DELAY_MS."""
MAX_DELAY_MS = 20
STOP_CHECK_MS = 200
STOP_TIMEOUT_S = 1.0
MAX_FOLDERS = 5_000
"""Watches are added under Python's global lock, and Linux limits their number per user."""


@dataclass(slots=True)
class FolderChanges:
    """Paths that have changed and were not collected yet."""

    paths: set[str] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, paths: Collection[str]) -> None:
        self.paths.update(paths)
        self._wake.set()

    async def collect(self, timeout_s: float) -> set[str]:
        """Wait for changes. Returns the changed paths, or none after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return set()
        paths, self.paths = self.paths, set()
        self._wake.clear()
        return paths


@asynccontextmanager
async def watch_folders(folders: Collection[Path]) -> AsyncIterator[FolderChanges]:
    """Watch the folders, not those below them.

    Reports each folder when its watch has begun: earlier changes take a scan to be found. Without
    notifications (too many folders, an unsupported file system) nothing is reported.
    """
    changes = FolderChanges()
    if len(folders) > MAX_FOLDERS:
        log.warning("folder_not_watched", folders=len(folders), limit=MAX_FOLDERS)
        yield changes
        return
    stop = threading.Event()
    thread = threading.Thread(
        target=_watch,
        args=(folders, stop, changes, asyncio.get_running_loop()),
        name="folder-watcher",
        daemon=True,
    )
    thread.start()
    try:
        yield changes
    finally:
        stop.set()
        await asyncio.to_thread(thread.join, STOP_TIMEOUT_S)


def _watch(
    folders: Collection[Path],
    stop: threading.Event,
    changes: FolderChanges,
    loop: asyncio.AbstractEventLoop,
) -> None:
    # A thread of its own: one of the pool would be taken for as long as the folder is watched. Not
    # recursive, because the library would follow links out of the folder: 14 s for one to /usr.
    paths = [str(folder) for folder in folders]
    reported = set(paths)
    try:
        for found in watch(
            *paths,
            watch_filter=None,
            recursive=False,
            debounce=MAX_DELAY_MS,
            step=STEP_MS,
            rust_timeout=STOP_CHECK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
            stop_event=stop,
        ):
            reported |= {path for _, path in found}
            if reported and not stop.is_set():
                loop.call_soon_threadsafe(changes.add, reported)
            reported = set()
    except (OSError, RuntimeError) as error:
        if not stop.is_set():
            log.warning("folder_not_watched", folder=paths[0], detail=str(error))


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
            parent = folder
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
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


MAX_NAME_CHARS = 1024
ROOT = "."
FileStamp = tuple[int, int, int]
"""Size, mtime, ctime in ns. ctime detects a replacement by a file of the same size and mtime."""


@dataclass(slots=True)
class FolderScan:
    """Result of one scan. All names are paths below the folder."""

    files: dict[str, FileStamp] = field(default_factory=dict)
    empty_files: dict[str, FileStamp] = field(default_factory=dict)
    """Not documents, or files about to be rewritten."""
    problems: dict[str, str] = field(default_factory=dict)
    """Reason by file, or by folder for everything below it."""
    skipped: set[str] = field(default_factory=set)
    """Files that are no documents. One that was ingested before stays."""
    folders: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Device and inode of each folder; `.` is the watched folder."""

    def resolve_device(self, name: str) -> int:
        """Return the device of the nearest existing parent folder."""
        parent = name.rpartition("/")[0] or ROOT
        while parent not in self.folders:
            parent = parent.rpartition("/")[0] or ROOT
        return self.folders[parent][0]

    def is_deleted(self, name: str) -> bool:
        """Return whether the file does not exist: neither found nor in a folder that could not be
        read.
        """
        if name in self.files or name in self.problems or name in self.skipped:
            return False
        return not any(parent.as_posix() in self.problems for parent in PurePosixPath(name).parents)


@dataclass(frozen=True, slots=True)
class FolderScanner:
    root: Path
    glob: str
    max_bytes: int
    allowed_roots: Sequence[Path] | None
    """Folders to which symbolic links may point; None allows any."""
    include: Sequence[str] = ()
    """Patterns for files that are skipped otherwise."""

    def scan(self) -> FolderScan:
        """Scan the whole folder.

        Raises ConfigurationError if it does not exist: a missing folder withdraws no documents.
        """
        folder_scan = FolderScan()
        if self.root.is_dir():
            self._scan_folder(self.root, "", folder_scan)
        if not folder_scan.folders and not folder_scan.problems:
            raise ConfigurationError(
                f"Folder {self.root} does not exist on this machine.",
                code="FOLDER_MISSING",
                remedy="Mount or create it. Until then its documents stay as they are.",
            )
        return folder_scan

    def inspect(
        self, names: Collection[str], last_scan: FolderScan, live_names: Container[str]
    ) -> FolderScan | None:
        """Look at these files only.

        Returns None if a scan has to find out more: about a folder, a name outside the last scan's
        folders, or a deletion.
        """
        folder_scan = FolderScan(folders=last_scan.folders)
        for name in names:
            parent, _, filename = name.rpartition("/")
            if any(part.startswith(".") for part in name.split("/")):
                continue
            if (parent or ROOT) not in last_scan.folders or name != replace_surrogates(name):
                return None
            path = self.root / name
            try:
                found = path.stat()
                if stat.S_ISDIR(found.st_mode):
                    return None
                if stat.S_ISREG(found.st_mode) and fnmatch(filename, self.glob):
                    self._add_file(name, found, folder_scan, is_link=path.is_symlink())
            except FileNotFoundError:
                if name in live_names:
                    return None
            except OSError as error:
                folder_scan.problems[name] = error.strerror or str(error)
        return folder_scan

    def _scan_folder(self, folder: Path, prefix: str, folder_scan: FolderScan) -> None:
        """Collect regular files at any depth, without following links to folders (cycles)."""
        name = prefix.rstrip("/") or ROOT
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            found = folder.stat()
            folder_scan.folders[name] = (found.st_dev, found.st_ino)
        except FileNotFoundError:  # deleted during the scan
            return
        except OSError as error:
            folder_scan.problems[replace_surrogates(name)] = error.strerror or str(error)
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                self._scan_entry(entry, prefix + entry.name, folder_scan)
            except FileNotFoundError:
                continue
            except OSError as error:
                folder_scan.problems[replace_surrogates(prefix + entry.name)] = (
                    error.strerror or str(error)
                )

    def _scan_entry(self, entry: os.DirEntry[str], name: str, folder_scan: FolderScan) -> None:
        if name != replace_surrogates(name):
            folder_scan.problems[replace_surrogates(name)] = "the name is not UTF-8"
        elif entry.is_dir(follow_symlinks=False):
            self._scan_folder(Path(entry.path), f"{name}/", folder_scan)
        elif entry.is_file() and fnmatch(entry.name, self.glob):
            self._add_file(name, entry.stat(), folder_scan, is_link=entry.is_symlink())

    def _add_file(
        self, name: str, found: os.stat_result, folder_scan: FolderScan, *, is_link: bool
    ) -> None:
        if is_skipped(name, self.glob, self.include):
            folder_scan.skipped.add(name)
        elif reason := self._find_rejection_reason(name, found.st_size, is_link=is_link):
            folder_scan.problems[name] = reason
        else:
            (folder_scan.files if found.st_size else folder_scan.empty_files)[name] = (
                found.st_size,
                found.st_mtime_ns,
                found.st_ctime_ns,
            )

    def _find_rejection_reason(self, name: str, size: int, *, is_link: bool) -> str | None:
        if len(name) > MAX_NAME_CHARS:
            return f"the path has {len(name)} characters; {MAX_NAME_CHARS} are allowed"
        if size > self.max_bytes:
            return f"{size:,} bytes; {self.max_bytes:,} are allowed"
        if (
            is_link
            and self.allowed_roots is not None
            and not any(
                (self.root / name).resolve().is_relative_to(root) for root in self.allowed_roots
            )
        ):
            return OUTSIDE_LINK
        return None
