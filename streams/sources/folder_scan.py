"""Scan a folder, or inspect some of its files.

Hidden files and folders are ignored, files that are no documents are counted. Unreadable files and
folders are reported.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from schemas.errors import ConfigurationError
from schemas.file_names import is_skipped
from streams.sources.file_access import OUTSIDE_LINK

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
            if (parent or ROOT) not in last_scan.folders or name != replace_undecodable(name):
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
            folder_scan.problems[replace_undecodable(name)] = error.strerror or str(error)
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                self._scan_entry(entry, prefix + entry.name, folder_scan)
            except FileNotFoundError:
                continue
            except OSError as error:
                folder_scan.problems[replace_undecodable(prefix + entry.name)] = (
                    error.strerror or str(error)
                )

    def _scan_entry(self, entry: os.DirEntry[str], name: str, folder_scan: FolderScan) -> None:
        if name != replace_undecodable(name):
            folder_scan.problems[replace_undecodable(name)] = "the name is not UTF-8"
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


def replace_undecodable(name: str) -> str:
    """Replace the surrogates by which Python represents file names that are not UTF-8."""
    return name.encode(errors="replace").decode()
